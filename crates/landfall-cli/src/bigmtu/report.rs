//! What was done, for people.

use std::time::Duration;

use landfall::defrag::bigmtu::{Amount, BigMtuStats};

/// What was done between two moments.
pub(super) fn line(before: &BigMtuStats, now: &BigMtuStats, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let rate = |now: Amount, before: Amount| {
        let (packets, bytes) = (now.packets - before.packets, now.bytes - before.bytes);
        format!(
            "{:.3} GB/s, {:.0} packets/s",
            bytes as f64 / 1e9 / seconds,
            packets as f64 / seconds
        )
    };
    let (joined, earlier) = (&now.joined.joined, &before.joined.joined);
    format!(
        "in {}; out {}; joined in place {}, by copying {}, passed as they came {}\n",
        rate(now.to_kernel, before.to_kernel),
        rate(now.from_kernel, before.from_kernel),
        joined.speculated - earlier.speculated,
        joined.conventional - earlier.conventional,
        joined.whole - earlier.whole,
    )
}

/// All of it.
pub(super) fn total(name: &str, stats: &BigMtuStats) -> String {
    let BigMtuStats { joined, to_kernel, cut, from_kernel, .. } = stats;
    let mut text = format!(
        "{name} is gone.\n\
         in   {} packets, {} bytes from {} frames: {} joined in place, {} by copying, {} passed \
         as they came; {} bytes copied\n\
         out  {} packets, {} bytes in {} frames\n",
        to_kernel.packets,
        to_kernel.bytes,
        joined.kernel_frames,
        joined.joined.speculated,
        joined.joined.conventional,
        joined.joined.whole,
        joined.bytes_copied(),
        from_kernel.packets,
        from_kernel.bytes,
        cut.frames,
    );
    let troubles = [
        (joined.kernel_drops, "frames dropped by the kernel: no room in the socket buffer"),
        (joined.gathered.expired, "packets did not become whole in time"),
        (joined.gathered.evicted, "packets given up for want of memory"),
        (joined.gathered.refused, "packets whose pieces contradicted each other"),
        (joined.lost, "packets lost here"),
        (stats.not_taken, "packets that the kernel did not take"),
        (stats.not_cut, "packets that cannot be cut"),
        (cut.failed, "frames that could not be sent"),
        (stats.stuck, "times that the lower link took nothing"),
        (stats.sums_finished, "packets of a local peer whose checksums were finished"),
    ];
    for (count, what) in troubles.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!("     {count} {what}\n");
    }
    text
}
