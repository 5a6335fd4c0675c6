//! Kernel, cores, capabilities, namespaces.

use landfall_testbed::cpu;
use landfall_testbed::privileges::{self, Privilege};

use super::{Feature, Finding};
use crate::machine;

pub(super) fn examine() -> Vec<Finding> {
    vec![
        kernel(),
        cores(),
        capability(
            Feature::NetAdmin,
            Privilege::NetAdmin,
            "CAP_NET_ADMIN",
            "interfaces, offloads, buffer sizes beyond the machine's limits",
        ),
        capability(Feature::NetRaw, Privilege::NetRaw, "CAP_NET_RAW", "packet sockets"),
        namespaces(),
    ]
}

/// The release in which the youngest of the calls came that are used here if they are
/// there (SendZc); most of it needs less, and each is tried by itself.
const NEWEST_NEED: (u32, u32) = (6, 0);

fn kernel() -> Finding {
    let (feature, name) = (Feature::Kernel, "kernel");
    let release = machine::first_line("/proc/sys/kernel/osrelease").unwrap_or_default();
    let (major, minor) = NEWEST_NEED;
    if version_of(&release).is_some_and(|version| version >= NEWEST_NEED) {
        return Finding::present(feature, name, format!("Linux {release}"));
    }
    Finding::missing(
        feature,
        name,
        format!("Linux {release}: older than {major}.{minor}; what it lacks is listed below"),
        format!("boot Linux {major}.{minor} or newer; what is present below works all the same"),
    )
}

/// Major and minor number of a release.
fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn cores() -> Finding {
    let (feature, name) = (Feature::TwoCores, "two cores");
    match cpu::allowed_cores() {
        Ok(cores) if cores.len() >= 2 => {
            Finding::present(feature, name, format!("{} may be used", cores.len()))
        }
        Ok(cores) => Finding::missing(
            feature,
            name,
            format!("{} may be used: sender and receiver share it", cores.len()),
            "give this machine or container a second core (docker: --cpuset-cpus=0,1)",
        ),
        Err(error) => Finding::missing(
            feature,
            name,
            error.to_string(),
            "allow sched_getaffinity for this process",
        ),
    }
}

fn capability(
    feature: Feature,
    privilege: Privilege,
    name: &'static str,
    good_for: &str,
) -> Finding {
    if privileges::has(privilege) {
        return Finding::present(feature, name, good_for);
    }
    let lower = name.to_ascii_lowercase();
    let container = name.trim_start_matches("CAP_");
    Finding::missing(
        feature,
        name,
        format!("not in effect; needed for {good_for}"),
        format!(
            "run as root, `setcap {lower}+ep` on the program, or `--cap-add {container}` for \
             a container"
        ),
    )
}

fn namespaces() -> Finding {
    let (feature, name) = (Feature::Namespaces, "network namespaces");
    match privileges::why_no_namespaces() {
        None => Finding::present(feature, name, "one was made, for `perf local --veth`"),
        Some(why) => Finding::missing(
            feature,
            name,
            why,
            "run as root; in a container add `--cap-add SYS_ADMIN --cap-add NET_ADMIN`",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_as_numbers() {
        assert_eq!(version_of("6.18.5-amd64"), Some((6, 18)));
        assert_eq!(version_of("5.4"), Some((5, 4)));
        assert!(
            version_of("6.9.1") > version_of("5.15.0") && version_of("6.10") > version_of("6.9")
        );
        assert_eq!(version_of("unknown"), None);
    }
}
