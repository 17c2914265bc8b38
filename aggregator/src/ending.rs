//! The news that the server is going down.

use tokio::sync::watch;

/// Tells every [`Ending`] that the server is going down.
#[derive(Debug)]
pub struct EndingNotifier(watch::Sender<bool>);

/// Can be waited for until the server goes down.
#[derive(Clone, Debug)]
pub struct Ending(watch::Receiver<bool>);

/// A notifier and what it notifies.
pub fn ending() -> (EndingNotifier, Ending) {
    let (sender, receiver) = watch::channel(false);
    (EndingNotifier(sender), Ending(receiver))
}

impl EndingNotifier {
    /// Says that the server is going down.
    pub fn notify(&self) {
        self.0.send_replace(true);
    }
}

impl Ending {
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
