//! The signal that the server is shutting down.

use tokio::sync::watch;

/// Tells every [`ShutdownSignal`] that the server is shutting down.
#[derive(Debug)]
pub struct ShutdownNotifier(watch::Sender<bool>);

/// A signal that can be awaited.
#[derive(Clone, Debug)]
pub struct ShutdownSignal(watch::Receiver<bool>);

/// A notifier and its signal.
pub fn shutdown_signal() -> (ShutdownNotifier, ShutdownSignal) {
    let (sender, receiver) = watch::channel(false);
    (ShutdownNotifier(sender), ShutdownSignal(receiver))
}

impl ShutdownNotifier {
    /// Signals that the server is shutting down.
    pub fn notify(&self) {
        self.0.send_replace(true);
    }
}

impl ShutdownSignal {
    /// Whether the server is shutting down.
    pub fn has_come(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when the server shuts down, or when the notifier is gone.
    pub async fn wait(mut self) {
        // An error means that the notifier is gone.
        self.0.wait_for(|ending| *ending).await.ok();
    }
}
