//! The processor of a server that computes: a control group whose limit changes every second.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use dwell_testbed::{CpuGroup, CpuGroups, Result};

use super::service::Utilisation;

/// A group that has what others leave of a processor, until this is dropped.
pub(crate) struct Limit {
    pub(crate) group: CpuGroup,
    stop: Arc<AtomicBool>,
    keeper: Option<JoinHandle<Result<()>>>,
    _groups: CpuGroups,
}

impl Limit {
    pub(crate) fn start(seed: u64) -> Result<Limit> {
        let others = Utilisation::new(seed);
        let share = move |elapsed: Duration| 1.0 - others.at(Duration::from_secs(elapsed.as_secs()).into());
        let groups = CpuGroups::create()?;
        let group = groups.add("server", share(Duration::ZERO))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, followed, begun) = (Arc::clone(&stop), group.clone(), Instant::now());
        let keeper = std::thread::spawn(move || follow(&followed, &stopped, || share(begun.elapsed())));
        Ok(Limit { group, stop, keeper: Some(keeper), _groups: groups })
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A limit that could not be changed shows in the latencies.
        let _ = self.keeper.take().map(JoinHandle::join);
    }
}

/// Sets the limit of a group to a share of a processor that changes, until `stop` is set.
pub(crate) fn follow(group: &CpuGroup, stop: &AtomicBool, share: impl Fn() -> f64) -> Result<()> {
    const STEP: Duration = Duration::from_millis(20);
    let mut last = None;
    while !stop.load(Ordering::Relaxed) {
        let now = share();
        if last.replace(now) != Some(now) {
            group.limit(now)?;
        }
        std::thread::sleep(STEP);
    }
    Ok(())
}
