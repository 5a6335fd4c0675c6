//! A link that changes under those who talk over it.

use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{INTERFACE, Scene};

/// When the interface was down, or has just come back: there is no way then.
#[derive(Default)]
pub(super) struct Outages(Mutex<Vec<Outage>>);

struct Outage {
    began: Instant,
    ended: Option<Instant>,
}

impl Outages {
    fn begin(&self) {
        self.0.lock().unwrap().push(Outage { began: Instant::now(), ended: None });
    }

    fn end(&self) {
        self.0.lock().unwrap().last_mut().unwrap().ended = Some(Instant::now());
    }

    /// Was it down at this moment, or soon after it?
    pub(super) fn was_down(&self, at: Instant) -> bool {
        const SOON: Duration = Duration::from_secs(1);
        let outages = self.0.lock().unwrap();
        outages.iter().any(|outage| {
            outage.began < at + SOON && outage.ended.is_none_or(|ended| at < ended + SOON)
        })
    }

    /// Those that were not over at this moment, for people.
    pub(super) fn since(&self, at: Instant) -> String {
        let outages = self.0.lock().unwrap();
        let those = outages.iter().filter(|outage| outage.ended.is_none_or(|ended| ended > at));
        let words = those.map(|outage| {
            let ended = outage.ended.map(|ended| ended.saturating_duration_since(at));
            format!("{:?} to {ended:?}", outage.began.saturating_duration_since(at))
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

/// In turns: the neighbour's station is another, and the interface is down for a while.
pub(super) fn change(scene: &Scene) {
    let mut station = 1u8;
    while !scene.is_over() {
        scene.pause(Duration::from_secs(3));
        station = station.wrapping_add(1);
        let other = format!("02:00:5e:10:00:{station:02x}");
        ip(scene, &["link", "set", "dev", INTERFACE, "address", &other]);
        scene.pause(Duration::from_secs(4));
        scene.outages.begin();
        scene.host.set_interface(INTERFACE, false).expect("it is there");
        scene.pause(Duration::from_millis(700));
        scene.host.set_interface(INTERFACE, true).expect("it is there");
        scene.outages.end();
        scene.pause(Duration::from_secs(8));
    }
}

fn ip(scene: &Scene, words: &[&str]) {
    let run = || Command::new("ip").args(words).status().expect("ip is there");
    assert!(scene.host.enter(run).expect("a namespace").success());
}
