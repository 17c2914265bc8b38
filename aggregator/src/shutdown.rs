//! The news that the server is going down.

use tokio::sync::watch;

/// Tells every [`ShutdownSignal`] that the server is going down.
#[derive(Debug)]
pub struct ShutdownNotifier(watch::Sender<bool>);

/// Can be waited for until the server goes down.
#[derive(Clone, Debug)]
pub struct ShutdownSignal(watch::Receiver<bool>);

/// A notifier and what it notifies.
pub fn shutdown_signal() -> (ShutdownNotifier, ShutdownSignal) {
    let (sender, receiver) = watch::channel(false);
    (ShutdownNotifier(sender), ShutdownSignal(receiver))
}

impl ShutdownNotifier {
    /// Says that the server is going down.
    pub fn notify(&self) {
        self.0.send_replace(true);
    }
}

impl ShutdownSignal {
    /// Whether the server is going down.
    pub fn has_come(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when the server goes down, or nobody is left to say so.
    pub async fn wait(mut self) {
        // An error means that the notifier is gone.
        self.0.wait_for(|ending| *ending).await.ok();
    }
}
