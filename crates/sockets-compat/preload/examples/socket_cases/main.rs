//! Small cases of how sockets behave, each with what was seen, as text.
//!
//! Run once by itself and once with the library preloaded, it has to print the same. It
//! knows nothing of the library, but for one question that is asked where it is told to
//! (`EXPECT_SHARED`): whether a pair of sockets is shared memory by now.

mod abuse;
mod basics;
mod beginnings;
mod both_ways;
mod busy_sets;
mod ends;
mod forks;
mod handlers;
mod options;
mod pair;
mod strangers;
mod wakes;
mod watching;

use pair::Seen;

type Case = (&'static str, fn(&mut Seen));

fn main() {
    let only: Vec<String> = std::env::args().skip(1).collect();
    match only.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["many", count] => return abuse::many(count.parse().expect("a number")),
        ["idle", count] => return abuse::idle(count.parse().expect("a number")),
        ["with_a_title"] => return pair::with_a_title(),
        ["killed_while_open"] => forks::killed_while_open(),
        ["without_memory"] => return abuse::without_memory(),
        ["echoed_by", port] => return pair::echoed_by(port.parse().expect("a port")),
        _ => {}
    }
    let groups: [&[Case]; 12] = [
        basics::CASES,
        beginnings::CASES,
        ends::CASES,
        watching::CASES,
        busy_sets::CASES,
        both_ways::CASES,
        options::CASES,
        forks::CASES,
        abuse::CASES,
        handlers::CASES,
        strangers::CASES,
        wakes::CASES,
    ];
    // A case that stands still ends the program: SIGALRM.
    let patience = if std::env::var_os("CASES_SETTLE_MS").is_some() { 180 } else { 30 };
    for &(name, case) in groups.into_iter().flatten() {
        if !only.is_empty() && !only.iter().any(|wanted| name.contains(wanted.as_str())) {
            continue;
        }
        let mut seen = Seen::default();
        // SAFETY: a number.
        unsafe { libc::alarm(patience) };
        case(&mut seen);
        for line in seen.lines() {
            println!("{name}: {line}");
        }
    }
}
