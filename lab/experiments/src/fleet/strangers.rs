//! Connections that never say anything.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use dwell_testbed::{Error, Namespace, Result};
use tokio::{io::AsyncReadExt, net::TcpStream, runtime, sync::oneshot, task::JoinSet, time::sleep};

use super::{PORT, traffic::nth_address};

/// The first address of a stranger; each has one of its own.
const FIRST: Ipv4Addr = Ipv4Addr::new(10, 192, 0, 1);
/// How long a stranger rests whom the collector has turned out, before it comes again.
const REST: Duration = Duration::from_secs(1);

/// Strangers that connect again and again, until this is ended.
pub(super) struct Strangers {
    opened: Arc<AtomicU64>,
    /// Dropping it ends them.
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<Result<()>>>,
}

impl Strangers {
    /// Starts so many in a namespace.
    pub(super) fn start(namespace: &Namespace, number: usize) -> Strangers {
        let opened = Arc::<AtomicU64>::default();
        let counter = Arc::clone(&opened);
        let (stop, stopped) = oneshot::channel();
        let thread = namespace.spawn_thread(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(Error::io("start a runtime"))?.block_on(async {
                let mut all = JoinSet::new();
                (0..number).for_each(|number| _ = all.spawn(never_speak(number, Arc::clone(&counter))));
                let _ = stopped.await;
            });
            Ok(())
        });
        Strangers { opened, stop, thread }
    }

    /// The number of connections that they have opened so far.
    pub(super) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Ends them.
    pub(super) fn end(self) -> Result<u64> {
        drop(self.stop);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
        Ok(self.opened.load(Ordering::Relaxed))
    }
}

async fn never_speak(number: usize, opened: Arc<AtomicU64>) {
    let address = nth_address(FIRST, number);
    loop {
        if let Ok(mut stream) = TcpStream::connect((address, PORT)).await {
            opened.fetch_add(1, Ordering::Relaxed);
            // The collector has nothing to say either, and closes it.
            let _ = stream.read(&mut [0]).await;
        }
        sleep(REST).await;
    }
}
