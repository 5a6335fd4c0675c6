//! Cores, capabilities, namespaces.

use landfall_testbed::cpu;
use landfall_testbed::privileges::{self, Privilege};

use super::{Feature, Finding};

pub(super) fn examine() -> Vec<Finding> {
    vec![
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
