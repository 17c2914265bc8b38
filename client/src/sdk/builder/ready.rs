//! The last step of the builder: settings that have a default, and the client.

use std::sync::Arc;

use bandana_shared::identity::ExperimentId;

use super::{Builder, HostTransport, Ready};
use crate::acceptance::Acceptance;
#[cfg(feature = "grpc")]
use crate::grpc::Transport;
#[cfg(feature = "grpc")]
use crate::sdk::driver::{Driver, StartError};
use crate::sdk::shared::Shared;
use crate::sdk::{Bandana, Tasks};
use crate::time::Clock;

impl<T> Builder<Ready<T>> {
    /// Sets separate terms for one experiment, also in addition to those of [`Builder::accept`].
    /// The experiment is fetched from the start.
    ///
    /// ```
    #[doc = include_str!("../../example.txt")]
    /// use bandana_client::{Acceptance, Bandana};
    /// use bandana_shared::{epsilon::Epsilon, identity::ExperimentId, rewards::Rewards};
    ///
    /// # let builder = agree(Bandana::builder().host_transport().in_memory())?;
    /// // Elsewhere every click is a report; here a user reports once in 30 days.
    /// let once = Acceptance::unsigned(Epsilon::new(2.0)?, Rewards::binary()).report_once(30);
    /// let builder = builder.accept_experiment(ExperimentId::new("start-page")?, once);
    /// # let (_bandana, mut tasks) = builder.build();
    /// # let bandana_client::Task::Fetch(task) = tasks.next_task()? else { panic!() };
    /// # assert_eq!(task.experiment_id.as_str(), "start-page");
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn accept_experiment(mut self, id: ExperimentId, acceptance: Acceptance) -> Self {
        self.step.settings.acceptances.by_id.insert(id, acceptance);
        self
    }

    /// Sets whether the sums of rewards of open assignments are kept. They are kept in the
    /// directory, or by the host that has the storage. So they survive the end of the process. A
    /// power cut, or a kill in the middle of a write, may lose them. The default is `true`.
    ///
    /// With `false`, no raw reward is ever stored on a disk. An assignment that was open when the
    /// app ended then reports only later rewards, or the default reward. So an app that ends before
    /// its attribution windows measures too few rewards. The setting has no effect on a client in
    /// memory: its open assignments report nothing once it has ended.
    ///
    /// ```
    #[doc = include_str!("../../example.txt")]
    /// use bandana_client::Bandana;
    ///
    /// # let app = tempfile::tempdir()?;
    /// # let builder = agree(Bandana::builder().host_transport().directory(app.path()))?;
    /// // Of what the user likes, nothing may rest on the device, not even in the app's directory.
    /// let builder = builder.keep_pending_rewards(false);
    /// # let clock = started()?.2;
    /// # let (bandana, mut tasks) = builder.clock(clock.clone()).build();
    /// # bandana.experiment("button-colour")?;
    /// # serve(&mut tasks, &clock)?;
    /// let choice = bandana.experiment("button-colour")?.choose();
    /// choice.reward(1.0);
    /// # tasks.write();
    /// assert!(!app.path().join("rewards").exists());
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// Those sums are the only raw rewards that are stored on a disk. They are in the app's own
    /// directory, and only its owner can read them. They are overwritten once the private bit is
    /// written. Neither write is synced by itself. So a power cut in the seconds after it can bring
    /// a sum back, until the next start. That start ignores the sum and erases it durably. Writing
    /// the sums sends nothing. The size of the write does not depend on the rewards, and the write
    /// is left to the operating system. Uploads share the disk's time with it, and do not wait for
    /// it otherwise.
    #[cfg(feature = "storage")]
    pub fn keep_pending_rewards(mut self, keep: bool) -> Self {
        self.step.settings.keeps_rewards = keep;
        self
    }

    /// Takes the time from this clock instead of the operating system's.
    ///
    /// ```
    #[doc = include_str!("../../example.txt")]
    /// use std::{sync::Arc, time::Duration};
    /// use bandana_client::{Bandana, Clock, Task, Timestamp};
    ///
    /// /// A clock that stands still.
    /// struct Stopped(Timestamp);
    ///
    /// impl Clock for Stopped {
    ///     fn now(&self) -> Timestamp {
    ///         self.0
    ///     }
    /// }
    /// let (now, hour) = (Timestamp::from_unix_ms(0), Duration::from_hours(1));
    /// # let builder = agree(Bandana::builder().host_transport().in_memory())?;
    /// let (bandana, mut tasks) = builder.clock(Arc::new(Stopped(now))).build();
    /// let experiment = bandana.experiment("button-colour")?;
    /// tasks.on_fetch_failed(&FetchTask::new(experiment.id().clone()), None)?;
    /// // The time of the next attempt is on this clock.
    /// assert!(matches!(tasks.next_task()?, Task::Wait(time) if time < now.after(hour)));
    /// # Ok::<(), Failure>(())
    /// ```
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.step.settings.clock = clock;
        self
    }
}

impl Builder<Ready<HostTransport>> {
    /// Sends this key with every call that [`Tasks::next_call`] returns.
    ///
    /// ```
    #[doc = include_str!("../../example.txt")]
    /// use bandana_client::{AppKey, Bandana, NextCall};
    ///
    /// # let ready = agree(Bandana::builder().host_transport().in_memory())?;
    /// let key = AppKey::new("bndk_AbM1pBHC0jRT1SXPrVgFzWAM5dqMKJkdPDo3ueZ8oA0")?;
    /// let (bandana, mut tasks) = ready.app_key(key).build();
    /// bandana.experiment("button-colour")?;
    /// let NextCall::Call(call) = tasks.next_call()? else { return Err("nothing to call".into()) };
    /// assert!(call.headers().any(|(name, _)| name == "bandana-app-key"));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// See [`AppKey`](crate::AppKey): all installations must have the same key.
    #[cfg(feature = "messages")]
    pub fn app_key(mut self, key: crate::app_key::AppKey) -> Self {
        self.step.transport.app_key = Some(key);
        self
    }

    /// Sets a function that the client calls when there may be work: an arm was drawn, an
    /// experiment was named, the user opted in or out, or the app woke the client. The client calls
    /// it once, and not again before the next [`Tasks::next_task`] or [`Tasks::next_call`]. It runs
    /// on the thread that made the work.
    ///
    /// The function may only schedule: wake a thread, post an event, set a timer. It must not call
    /// the client. It should hold no [`Bandana`], which would keep the client alive. Once the
    /// [`Tasks`] are dropped, no call of the function is under way, and none comes.
    ///
    /// ```
    #[doc = include_str!("../../example.txt")]
    /// use std::sync::mpsc::channel;
    /// use bandana_client::Bandana;
    ///
    /// let (work, there_is_work) = channel();
    /// # let ready = agree(Bandana::builder().host_transport().in_memory())?;
    /// let (bandana, mut tasks) = ready.on_work(move || work.send(()).unwrap_or(())).build();
    /// bandana.experiment("button-colour")?;
    /// // In the thread of the host:
    /// there_is_work.recv()?;
    /// tasks.next_task()?;
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// The function is never called because of a reward. So the calls that it leads to tell nothing
    /// of a reward. Sums of rewards that are kept ([`Builder::keep_pending_rewards`]) are written
    /// at other times: with the next task, by [`Tasks::write`], which may follow a reward, or when
    /// the tasks are dropped.
    pub fn on_work(mut self, schedule: impl Fn() + Send + Sync + 'static) -> Self {
        self.step.settings.on_work = Some(Box::new(schedule));
        self
    }

    /// Builds the handle for the app, and the tasks that the host carries out.
    ///
    /// ```
    #[doc = include_str!("../../example.txt")]
    /// use bandana_client::{Bandana, Task};
    ///
    /// # let builder = agree(Bandana::builder().host_transport().in_memory())?;
    /// let (bandana, mut tasks) = builder.build();
    /// // The app does not take part in any experiment yet.
    /// assert!(matches!(tasks.next_task()?, Task::Done));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// A directory that can't be used is not an error here. The app then draws arms without
    /// reports: see [`crate::Status::reporting`].
    pub fn build(self) -> (Bandana, Tasks) {
        let Ready { transport, settings } = self.step;
        let bandana = Bandana::new(Shared::new(settings));
        #[cfg(feature = "messages")]
        let tasks = Tasks::new(&bandana, transport.app_key);
        #[cfg(not(feature = "messages"))]
        let (HostTransport {}, tasks) = (transport, Tasks::new(&bandana));
        (bandana, tasks)
    }
}

#[cfg(feature = "grpc")]
impl Builder<Ready<Transport>> {
    /// Sends this key of the app with every call, for an aggregator that demands one.
    ///
    /// While the aggregator does not know the key, nothing is lost. Reports are kept, and sent
    /// again after growing waits.
    ///
    /// ```
    #[doc = include_str!("../../example.txt")]
    /// use bandana_client::{Bandana, grpc::AppKey};
    ///
    /// let builder = Bandana::builder().endpoint("http://localhost:50051")?;
    /// # let builder = agree(builder.in_memory())?;
    /// let key = AppKey::new("bndk_AbM1pBHC0jRT1SXPrVgFzWAM5dqMKJkdPDo3ueZ8oA0")?;
    /// let (_bandana, _driver) = builder.app_key(key).driver();
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// # Privacy
    /// The key is the same for all installations of the app: see [`crate::grpc::AppKey`].
    pub fn app_key(mut self, key: crate::grpc::AppKey) -> Self {
        self.step.transport = self.step.transport.with_app_key(key);
        self
    }

    /// Starts a thread that does all the work, and returns the handle for the app. This is for
    /// hosts without an async runtime.
    ///
    /// ```
    #[doc = include_str!("../../example.txt")]
    /// use std::time::Duration;
    /// use bandana_client::Bandana;
    ///
    /// let builder = Bandana::builder().endpoint("http://localhost:50051")?;
    /// # let builder = agree(builder.in_memory())?;
    /// let bandana = builder.start()?;
    /// // The thread ends on request, or with the last handle.
    /// assert!(bandana.shutdown(Duration::from_secs(10)));
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// A directory that can't be used is not an error here. The app then draws arms without
    /// reports: see [`crate::Status::reporting`].
    ///
    /// # Errors
    /// [`StartError`] when the operating system can't start a thread.
    pub fn start(self) -> Result<Bandana, StartError> {
        let (bandana, driver) = self.driver();
        driver.start()?;
        Ok(bandana)
    }

    /// Builds the handle for the app, and the driver. The driver does all the work while you await
    /// its [`Driver::run`]. This is for hosts with a tokio runtime.
    ///
    /// ```
    #[doc = include_str!("../../example.txt")]
    /// use bandana_client::Bandana;
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    /// # runtime.block_on(async {
    /// let builder = Bandana::builder().endpoint("http://localhost:50051")?;
    /// # let builder = agree(builder.in_memory())?;
    /// let (bandana, driver) = builder.driver();
    /// let work = tokio::spawn(driver.run());
    /// // The driver ends with the last handle.
    /// drop(bandana);
    /// work.await?;
    /// # Ok::<(), Failure>(())
    /// # })?;
    /// # Ok::<(), Failure>(())
    /// ```
    ///
    /// A directory that can't be used is not an error here. The app then draws arms without
    /// reports: see [`crate::Status::reporting`].
    pub fn driver(self) -> (Bandana, Driver) {
        let Ready { transport, settings } = self.step;
        let bandana = Bandana::new(Shared::new(settings));
        let driver = Driver::new(Arc::clone(&bandana.shared), transport);
        (bandana, driver)
    }
}
