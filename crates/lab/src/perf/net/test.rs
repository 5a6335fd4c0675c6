//! What is measured between two programs, as the client asks for it.

use std::time::Duration;

use anyhow::{Result, bail};
use landfall_testbed::rivals::Workload;
use serde::{Deserialize, Serialize};

/// The protocols that can be measured between two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Stp,
    /// In frames inside of UDP.
    Qpip,
    Tcp,
    Udp,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Stp, Self::Qpip, Self::Tcp, Self::Udp];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Stp => "stp",
            Self::Qpip => "qpip",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// One run of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Test {
    pub(super) kind: Kind,
    /// Messages there and back; otherwise as many bytes one way as possible.
    pub(super) latency: bool,
    /// What is handed over at once.
    pub(super) message: usize,
    /// The longest of STP; without it, what fills a packet.
    pub(super) stu: Option<u32>,
    pub(super) seconds: f64,
    pub(super) connections: u32,
    pub(super) loss: f64,
    /// By its name.
    pub(super) workload: String,
    /// What units are sized for; of STP where it was chosen, which finds its own otherwise.
    pub(super) mtu: u32,
    pub(super) is_mtu_chosen: bool,
    /// TCP's congestion control does not pace.
    pub(super) unpaced: bool,
}

impl Test {
    pub(super) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.clamp(0.0, 600.0))
    }

    pub(super) fn workload(&self) -> Result<Workload> {
        let all = [
            Workload::Plain,
            Workload::Sendfile,
            Workload::Trunc,
            Workload::SendfileTrunc,
            Workload::Touch,
        ];
        let found = all.into_iter().find(|one| one.name() == self.workload);
        found.ok_or_else(|| anyhow::anyhow!("there is no workload `{}`", self.workload))
    }

    /// Whatever a client asks for stays within what a server can bear.
    pub(super) fn check(&self) -> Result<()> {
        let workload = self.workload()?;
        let longest = if self.latency { 1 << 10 } else { 8 << 20 };
        let bounds = [
            ("message", self.message as f64, 1.0, f64::from(longest)),
            ("stu", f64::from(self.stu.unwrap_or(1024)), 64.0, 65_536.0),
            ("seconds", self.seconds, 0.01, 600.0),
            ("connections", f64::from(self.connections), 1.0, 1000.0),
            ("loss", self.loss, 0.0, 0.5),
            ("mtu", f64::from(self.mtu), 1280.0, 65_536.0),
        ];
        for (name, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                bail!("{name} {value}: {least} to {most} are possible");
            }
        }
        let is_plain = workload == Workload::Plain;
        let can = match self.kind {
            Kind::Tcp => true,
            Kind::Stp | Kind::Udp => is_plain || workload == Workload::Touch,
            Kind::Qpip => is_plain && self.message <= 56 << 10,
        };
        let has_many = matches!(self.kind, Kind::Stp | Kind::Tcp) || self.connections == 1;
        if !can || !has_many || (self.kind == Kind::Udp && self.message > 65_507) {
            bail!(
                "{} with workload {workload}, messages of {} bytes and {} connections is not \
                 possible",
                self.kind.name(),
                self.message,
                self.connections
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test() -> Test {
        Test {
            kind: Kind::Stp,
            latency: false,
            message: 1 << 20,
            stu: Some(1024),
            seconds: 1.0,
            connections: 1,
            loss: 0.0,
            workload: "plain".into(),
            mtu: 1500,
            is_mtu_chosen: false,
            unpaced: false,
        }
    }

    #[test]
    fn what_a_server_cannot_bear_is_refused() {
        test().check().unwrap();
        let senseless = [
            Test { message: 0, ..test() },
            Test { message: usize::MAX, ..test() },
            Test { latency: true, ..test() },
            Test { stu: Some(0), ..test() },
            Test { seconds: f64::NAN, ..test() },
            Test { seconds: 1e300, ..test() },
            Test { connections: u32::MAX, ..test() },
            Test { loss: -1.0, ..test() },
            Test { workload: "juggle".into(), ..test() },
            Test { workload: "trunc".into(), ..test() },
            Test { mtu: 1, ..test() },
            Test { kind: Kind::Qpip, ..test() },
            Test { kind: Kind::Udp, message: 1000, connections: 2, ..test() },
        ];
        for test in senseless {
            assert!(test.check().is_err(), "{test:?}");
        }
    }
}
