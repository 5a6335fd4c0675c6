//! Two hosts with two cables between them: both carry what ranks exchange, and one that is cut
//! stops nobody.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use landfall_testbed::{Namespace, VethConfig, VethEnd, VethPair, require_namespaces};
use landfall_testkit::or_skip;

use crate::cases::{check_between, encrypt, program};
use crate::mpi::{Program, agent, expect_all_well, mpicc, mpirun};
use crate::tools::run;

const LIMIT: Duration = Duration::from_secs(60);
/// What the other cable has carried before it is cut.
const SOME: u64 = 1 << 20;

static SPEED: Program = Program::new("speed", mpicc);

fn cables() -> [VethPair; 2] {
    let [here, there] = [0, 1].map(|_| Namespace::new().unwrap());
    [0, 1].map(|cable| {
        VethPair::between(&here, &there, VethConfig { cable, ..VethConfig::default() }).unwrap()
    })
}

/// What both ends of a cable are in.
fn network(cable: &VethPair) -> String {
    let [a, b, c, _] = cable.a.ipv4.octets();
    format!("{a}.{b}.{c}.0/24")
}

/// What an interface has sent and received, in bytes.
fn carried(end: &VethEnd) -> u64 {
    let table = || fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let table = end.namespace.enter(table).unwrap();
    let row = table.lines().find_map(|line| line.trim().strip_prefix(&format!("{}:", end.name)));
    let numbers: Vec<u64> =
        row.unwrap().split_whitespace().map(|number| number.parse().unwrap()).collect();
    numbers[0] + numbers[8]
}

/// Two ranks, one at each end of the cables, which are named by their networks: their names and
/// addresses differ from host to host.
fn ranks(cables: &[VethPair; 2], agent: &std::path::Path, program: &std::path::Path) -> Command {
    let [here, there] = [&cables[0].a, &cables[0].b].map(|end| end.ipv4);
    let mut command = mpirun(2);
    // Each host begins with the first core.
    command.args(["--bind-to", "none"]);
    command.arg("--host").arg(format!("{here}:1,{there}:1"));
    command.args(["--mca", "plm_rsh_agent"]).arg(agent);
    command.env("FI_LANDFALL_PLAINTEXT", "1").env("FI_LANDFALL_PATIENCE", "20");
    command.env("FI_LANDFALL_RAILS", cables.each_ref().map(network).join(","));
    for name in
        ["FI_PROVIDER_PATH", "FI_LANDFALL_PLAINTEXT", "FI_LANDFALL_PATIENCE", "FI_LANDFALL_RAILS"]
    {
        command.args(["-x", name]);
    }
    command.arg(program).arg("quick");
    command
}

/// The cables, after ranks have sent all that `speed` sends; none where something is missing.
fn exchange(test: &str, meanwhile: impl FnOnce(&[VethPair; 2])) -> Option<[VethPair; 2]> {
    let program = or_skip!(SPEED.path(), test);
    let cables = cables();
    let agent = agent(&cables[0].b.namespace);
    let command = ranks(&cables, &agent.path().join("agent"), program);
    let here = cables[0].a.namespace.clone();
    let running = thread::spawn(move || here.enter(move || run(command, LIMIT)).unwrap());
    meanwhile(&cables);
    let output = running.join().unwrap();
    expect_all_well(&output);
    Some(cables)
}

#[test]
fn both_rails_carry_what_ranks_exchange() {
    require_namespaces!();
    let exchanged = exchange("both_rails_carry_what_ranks_exchange", |_| ());
    let Some(cables) = exchanged else { return };
    let carried = [0, 1].map(|nth: usize| carried(&cables[nth].a));
    // 32 messages of 1 MiB, beside shorter ones. How much of them is up to how fast each is, which
    // others that run here decide; what keeps a rail alive is a thousandth of that.
    assert!(carried.iter().all(|bytes| *bytes > 1 << 20), "{carried:?}");
}

#[test]
fn a_rail_that_is_cut_stops_nobody() {
    require_namespaces!();
    exchange("a_rail_that_is_cut_stops_nobody", |cables| {
        let until = Instant::now() + LIMIT;
        while carried(&cables[1].a) < SOME {
            assert!(Instant::now() < until, "the second rail carries nothing");
            thread::sleep(Duration::from_millis(1));
        }
        let end = &cables[1].b;
        let mut ip = Command::new("ip");
        ip.args(["link", "set", &end.name, "down"]);
        let status = end.namespace.enter(move || ip.status()).unwrap().unwrap();
        assert!(status.success(), "{status}");
    });
}

/// What one end sends to the other goes to a station that is not there.
fn lead_astray(from: &VethEnd, to: &VethEnd) {
    let mut ip = Command::new("ip");
    ip.args(["neigh", "replace", &to.ipv4.to_string(), "lladdr", "02:00:00:00:00:01"]);
    ip.args(["dev", &from.name, "nud", "permanent"]);
    let status = from.namespace.enter(move || ip.status()).unwrap().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn a_first_rail_that_is_dead_prevents_no_connection() {
    require_namespaces!();
    let program = or_skip!(program());
    let [dead, second] = cables();
    lead_astray(&dead.a, &dead.b);
    lead_astray(&dead.b, &dead.a);
    let addresses = [&dead.a, &dead.b].map(|end| end.ipv4.into());
    // Whom a message is from is known all the same.
    for (case, key) in [("sources", true), ("all_lengths", false), ("remote_memory", false)] {
        check_between([&dead.a, &dead.b], addresses, program, case, |command| {
            command.env("FI_LANDFALL_RAILS", network(&second));
            encrypt(command, key);
        });
    }
}
