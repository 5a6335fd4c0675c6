//! Two sides as threads of this process, each where its side of the plan says.

use std::sync::mpsc::channel;

use anyhow::Result;
use landfall::clan::Fabric;
use landfall_testbed::Sample;
use landfall_testbed::rivals::{Endpoints, WorkerPlace};

use super::job::{Answered, ByChannel, InitiatorResult, Job, sample};
use crate::workload::TwoSided;
use crate::workload::side::place_thread;

/// Makes the node of a side, on its thread.
pub(super) type Open<'a, F> = &'a (dyn Fn(&WorkerPlace) -> Result<F> + Sync);

/// Runs the job. `open` makes the node of a side, on its thread: the first for who
/// asks, the second for who answers.
pub(super) fn run<F: Fabric>(
    endpoints: &Endpoints,
    job: &Job,
    open: [Open<'_, F>; 2],
) -> Result<Sample> {
    let limit = job.limit;
    let ((tell_b, hear_a), (tell_a, hear_b)) = (channel(), channel());
    let near = ByChannel { tell: tell_a, hear: hear_a, limit };
    let far = ByChannel { tell: tell_b, hear: hear_b, limit };
    Threads { endpoints, job, open }.run((near, far))
}

struct Threads<'a, F> {
    endpoints: &'a Endpoints,
    job: &'a Job,
    open: [Open<'a, F>; 2],
}

impl<F: Fabric> TwoSided for Threads<'_, F> {
    type Meeting = ByChannel;
    type Begun = InitiatorResult;
    type Served = Answered;
    type Outcome = Sample;

    fn begin(&self, meeting: &mut ByChannel) -> Result<InitiatorResult> {
        let side = &self.endpoints.send;
        place_thread(side)?;
        super::ask(&(self.open[0])(side)?, meeting, self.job)
    }

    fn serve(&self, meeting: &mut ByChannel) -> Result<Answered> {
        let side = &self.endpoints.receive;
        place_thread(side)?;
        super::answer(&(self.open[1])(side)?, meeting, self.job)
    }

    fn outcome(&self, asked: InitiatorResult, answered: Answered) -> Result<Sample> {
        Ok(sample(self.job, &asked, answered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::clan::job::{Waiting, Work};
    use landfall::clan::Threads;
    use std::time::Duration;

    #[test]
    fn every_work_is_done_between_threads() {
        let works = [
            Work::Word { together: 4 },
            Work::Message { bytes: 8, dma: false, together: 4 },
            Work::Message { bytes: 1000, dma: false, together: 1 },
            Work::Message { bytes: 65_536, dma: true, together: 1 },
            Work::Elements { batch: 1 },
            Work::Elements { batch: 64 },
            Work::Dma { request: 1 << 20 },
            Work::Bytes { message: 1000, acknowledged: false },
            Work::Bytes { message: 65_536, acknowledged: true },
        ];
        let ways = [Waiting::Spin, Waiting::Balanced, Waiting::Block];
        for (work, waiting) in works.iter().flat_map(|&work| ways.map(|way| (work, way))) {
            let (near, far) = Threads::pair().unwrap();
            let endpoints = Endpoints::loopback().unwrap();
            let (time, limit) = (Duration::from_millis(20), Duration::from_secs(60));
            let job = Job { work, waiting, time, limit, core: None };
            let open: [Open<'_, Threads>; 2] = [&|_| Ok(near.clone()), &|_| Ok(far.clone())];
            let sample = run(&endpoints, &job, open)
                .unwrap_or_else(|error| panic!("{work:?}, {waiting:?}: {error:?}"));
            assert!(sample.messages > 0 && sample.bytes > 0, "{work:?}: {sample:?}");
        }
    }
}
