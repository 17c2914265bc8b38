//! Signals that end a program.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, which is Ctrl-C, and SIGTERM.
#[derive(Debug)]
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// From now on neither ends the program by itself.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn new() -> std::io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for one of them.
    pub async fn wanted(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
