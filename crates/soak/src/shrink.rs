//! [`shrink`]: less of a plan that fails just the same.

use crate::plan::Plan;
use crate::world::{Report, run};
use landfall_simnet::{EngineConfig, Loss, Probability};

/// A smaller plan that fails, and what came of it.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The plan.
    pub plan: Plan,
    /// The steps that are left, by their numbers in the plan that was drawn.
    pub steps: Vec<usize>,
    /// Its report.
    pub report: Report,
    /// How many runs it took.
    pub runs: u32,
}

/// Leaves steps, hosts and faults of the network out of a plan that fails, for as long as it
/// fails and this many runs are left. What fails may be another check than before: each is one.
#[must_use]
pub fn shrink(plan: &Plan, report: Report, most_runs: u32) -> Shrunk {
    let steps = (0..plan.steps.len()).collect();
    let mut shrunk = Shrunk { plan: plan.clone(), steps, report, runs: 0 };
    let mut part = plan.steps.len().div_ceil(2);
    while part > 0 && shrunk.runs < most_runs {
        let before = shrunk.steps.len();
        let mut at = 0;
        while at < shrunk.steps.len() && shrunk.runs < most_runs {
            if !shrunk.try_without(at, part) {
                at += part;
            }
        }
        if part == 1 && shrunk.steps.len() == before {
            break;
        }
        part = if part > 1 { part / 2 } else { 1 };
    }
    shrunk.calm_down(most_runs);
    shrunk
}

impl Shrunk {
    /// Does it fail without these steps? Then they are gone.
    fn try_without(&mut self, at: usize, count: usize) -> bool {
        let mut plan = self.plan.clone();
        let mut steps = self.steps.clone();
        let end = steps.len().min(at + count);
        steps.drain(at..end);
        plan.steps.drain(at..end);
        self.try_plan(plan, steps)
    }

    fn try_plan(&mut self, plan: Plan, steps: Vec<usize>) -> bool {
        self.runs += 1;
        let report = run(&plan);
        if report.wrong.is_empty() {
            return false;
        }
        (self.plan, self.steps, self.report) = (plan, steps, report);
        true
    }

    /// Leaves out what the network and drivers do, one thing after another.
    fn calm_down(&mut self, most_runs: u32) {
        let changes: [fn(&mut Plan); 11] = [
            |plan| plan.planes.truncate(1),
            |plan| plan.planes.iter_mut().for_each(|plane| plane.damage = 0),
            |plan| plan.planes.iter_mut().for_each(|plane| plane.link.loss = Loss::None),
            |plan| {
                plan.planes.iter_mut().for_each(|plane| plane.link.reordering = Default::default());
            },
            |plan| plan.planes.iter_mut().for_each(|p| p.link.duplication = Probability::NEVER),
            |plan| plan.how.is_sealed = false,
            |plan| (plan.how.has_key_pairs, plan.how.is_crowded) = (false, false),
            |plan| (plan.how.eager, plan.how.window) = (0, None),
            |plan| plan.how.is_shared = false,
            |plan| (plan.how.is_tight, plan.how.asks) = (false, false),
            |plan| plan.how.engine = EngineConfig::default(),
        ];
        for change in changes {
            if self.runs >= most_runs {
                return;
            }
            let mut plan = self.plan.clone();
            change(&mut plan);
            let steps = self.steps.clone();
            let _ = self.try_plan(plan, steps);
        }
    }
}
