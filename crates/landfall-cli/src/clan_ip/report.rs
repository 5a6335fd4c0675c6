//! What was done, in words.

use std::time::Duration;

use landfall::clan::ip::ClanIpStats;

/// What happened since the line before.
pub(super) fn line(last: &ClanIpStats, now: &ClanIpStats, time: Duration) -> String {
    let rate = |last: u64, now: u64| (now - last) as f64 / time.as_secs_f64();
    format!(
        "out {:8.0} packets/s {:7.1} MB/s   in {:8.0} packets/s {:7.1} MB/s   waited for a \
         cookie {:4.1} %   dropped {}\n",
        rate(last.sent, now.sent),
        rate(last.sent_bytes, now.sent_bytes) / 1e6,
        rate(last.received, now.received),
        rate(last.received_bytes, now.received_bytes) / 1e6,
        share(now.waited - last.waited, now.sent - last.sent),
        now.dropped - last.dropped,
    )
}

/// What happened altogether.
pub(super) fn total(name: &str, stats: &ClanIpStats) -> String {
    let ClanIpStats { sent, sent_bytes, received, received_bytes, waited, .. } = *stats;
    let ClanIpStats { dropped, not_taken, connections, misbehaved, .. } = *stats;
    format!(
        "{name} is gone. Out: {sent} packets, {:.1} MB, of which {waited} ({:.1} %) found no cookie \
         at once. In: {received} packets, {:.1} MB. Dropped: {dropped}; not taken by the kernel: \
         {not_taken}. Connections: {connections}; ended because the other side misbehaved: \
         {misbehaved}.\n",
        sent_bytes as f64 / 1e6,
        share(waited, sent),
        received_bytes as f64 / 1e6,
    )
}

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 * 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_sent_is_no_division_by_nothing() {
        let none = ClanIpStats::default();
        assert!(line(&none, &none, Duration::from_secs(1)).contains("0.0 %"));
        let some = ClanIpStats { sent: 200, waited: 5, received: 7, ..none };
        assert!(line(&none, &some, Duration::from_secs(2)).contains("2.5 %"));
        assert!(total("clan0", &some).contains("In: 7 packets"));
    }
}
