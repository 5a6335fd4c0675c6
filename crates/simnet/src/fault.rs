//! What happens to a frame on the wire, drawn by lot.

use landfall_placement::{Duration, Random, Seed};

use crate::frame::Frame;
use crate::link::{LinkConfig, Loss, Probability};

/// The dice of one way. Each kind of fault has its own, so that turning one on
/// does not change which frames the others strike.
#[derive(Debug)]
pub(crate) struct Dice {
    loss: Random,
    duplication: Random,
    reordering: Random,
    corruption: Random,
    pub(crate) queue: Random,
    /// The state of bursty loss.
    burst: bool,
}

impl Dice {
    pub(crate) fn new(seed: Seed) -> Self {
        let mut random = Random::new(seed);
        let mut fork = || Random::new(random.fork());
        Self {
            loss: fork(),
            duplication: fork(),
            reordering: fork(),
            corruption: fork(),
            queue: fork(),
            burst: false,
        }
    }

    /// Is this frame lost?
    pub(crate) fn loses(&mut self, config: &LinkConfig) -> bool {
        match config.loss {
            Loss::None => false,
            Loss::Uniform(probability) => hits(&mut self.loss, probability),
            Loss::Bursty { start, stop, good, bad } => {
                let change = if self.burst { stop } else { start };
                self.burst ^= hits(&mut self.loss, change);
                hits(&mut self.loss, if self.burst { bad } else { good })
            }
        }
    }

    /// Does this frame arrive twice?
    pub(crate) fn duplicates(&mut self, config: &LinkConfig) -> bool {
        hits(&mut self.duplication, config.duplication)
    }

    /// How much longer this frame takes, if others may overtake it.
    pub(crate) fn holds_back(&mut self, config: &LinkConfig) -> Option<Duration> {
        if !hits(&mut self.reordering, config.reordering.probability) {
            return None;
        }
        let most = u64::try_from(config.reordering.extra_delay.as_nanos()).unwrap_or(u64::MAX);
        Some(Duration::from_nanos(self.reordering.below(most.saturating_add(1))))
    }

    /// Flips bits, perhaps; says whether it did.
    pub(crate) fn damages(&mut self, config: &LinkConfig, frame: &mut Frame) -> bool {
        if frame.is_empty() || !hits(&mut self.corruption, config.corruption.probability) {
            return false;
        }
        let flips = 1 + self.corruption.below(u64::from(config.corruption.most_bits));
        for _ in 0..flips {
            let bit = self.corruption.below(frame.len() as u64 * 8) as usize;
            frame.bytes[bit / 8] ^= 1 << (bit % 8);
        }
        true
    }
}

fn hits(random: &mut Random, probability: Probability) -> bool {
    random.chance(probability.parts_per_million())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn fates(config: LinkConfig, frames: usize) -> Vec<bool> {
        let mut dice = Dice::new([3; 32]);
        (0..frames).map(|_| dice.loses(&config)).collect()
    }

    #[test]
    fn uniform_loss_loses_its_share() {
        let config = LinkConfig::new().loss(Loss::Uniform(Probability::percent(10)));
        let lost = fates(config, 100_000).into_iter().filter(|lost| *lost).count();
        assert!((9_000..11_000).contains(&lost), "{lost}");
    }

    #[test]
    fn bursts_lose_their_share_in_runs_of_their_length() {
        let config = LinkConfig::new().loss(Loss::bursts(Probability::percent(10), 8));
        let fates = fates(config, 200_000);
        let lost = fates.iter().filter(|lost| **lost).count();
        let runs = fates.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        assert!((17_000..23_000).contains(&lost), "{lost}");
        assert!((7.0..9.0).contains(&(lost as f64 / runs as f64)), "{lost} in {runs} runs");
    }

    #[test]
    fn one_fault_does_not_move_another() {
        let lossy = LinkConfig::new().loss(Loss::Uniform(Probability::percent(30)));
        let worse = lossy.duplication(Probability::percent(50)).corruption(Probability::ALWAYS);
        let mut dice = Dice::new([3; 32]);
        let with_others: Vec<_> = (0..1_000)
            .map(|_| {
                let mut frame = Frame::raw(vec![0; 100]);
                dice.duplicates(&worse);
                assert!(dice.damages(&worse, &mut frame));
                assert_eq!(frame.bytes.iter().map(|b| b.count_ones()).sum::<u32>(), 1);
                dice.loses(&worse)
            })
            .collect();
        assert_eq!(with_others, fates(lossy, 1_000));
    }
}
