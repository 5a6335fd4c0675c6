//! The model against the papers, and the page that shows it.

mod clan;

use std::path::Path;
use std::sync::LazyLock;

use nic_firmware_model::reproduce::exhibit::{MET, Measure, Score};
use nic_firmware_model::reproduce::report::{Chapter, chapters, page};
use nic_firmware_model::reproduce::{Design, Exhibit, Provenance, Row, Value};

/// Simulated once for all tests.
static CHAPTERS: LazyLock<Vec<Chapter>> = LazyLock::new(chapters);

fn all() -> impl Iterator<Item = &'static Exhibit> {
    CHAPTERS.iter().flat_map(|Chapter { exhibits, .. }| exhibits)
}

/// What was fitted fits.
#[test]
fn fitted_values_are_met() {
    for exhibit in all() {
        for (row, column, value) in exhibit.stated() {
            if matches!(value.standing, Provenance::Fitted | Provenance::Given) {
                let error = value.error().unwrap();
                assert!(
                    error.abs() <= 0.03,
                    "{}, {row}, {column}: {value:?} is off by {:.1} %",
                    exhibit.name,
                    error * 100.0
                );
            }
        }
    }
}

/// Each value that is scored, with the names of its exhibit and row, and what is said of the row.
fn scorable() -> impl Iterator<Item = (String, Option<&'static str>, &'static Value)> {
    all().flat_map(|exhibit| {
        exhibit.rows.iter().flat_map(move |row| {
            let values = row.values.iter().filter(|value| {
                value.paper.is_some()
                    && matches!(value.standing, Provenance::Predicted | Provenance::Restated)
            });
            values.map(move |value| {
                (format!("{}, {}, {}", exhibit.design, exhibit.name, row.label), row.why, value)
            })
        })
    })
}

/// A prediction is met, or it is what the page says it is instead, and why.
#[test]
fn each_prediction_is_within_its_bound() {
    for (place, why, value) in scorable() {
        let (error, bound) = (value.error().unwrap(), value.bound().unwrap());
        assert!(value.is_within_bound().unwrap(), "{place}: {value:?}, off by {error:.3}");
        let is_missed = value.scored() == Some(Score::Missed);
        assert!(!is_missed || why.is_some(), "{place}: {value:?}, and no word about it");
        assert!(
            value.held.is_none() || !value.is_close().unwrap(),
            "{place}: {value:?} is met: its bound of {bound:.3} is wider than it needs to be"
        );
    }
}

/// Whatever bound is wider than the limit of its measure, by whatever much, is counted as
/// missed, and none is counted as met.
#[test]
fn a_bound_that_is_wide_is_counted_as_missed() {
    let wide = scorable().filter(|(_, _, value)| value.bound() > Some(value.limit())).count();
    let chapters = || CHAPTERS.iter().filter(|chapter| chapter.design.is_some());
    let missed: usize = chapters().map(|chapter| chapter.missed().count()).sum();
    assert_eq!((wide, missed), (missed, chapters().map(|it| it.summary().missed).sum()));
    for (place, _, value) in scorable().filter(|it| it.2.scored() == Some(Score::Met)) {
        let bound = value.bound().unwrap();
        assert!(bound <= value.limit(), "{place}: {value:?} is met within {bound}");
    }
    // The same of a value that is met, and held to anything.
    let wide = Value::predicted(28.0, 28.0).held_to(13_340.0);
    for value in [wide, wide.of_packets(1e5)] {
        let row = Row::new("a row", vec![value]);
        let exhibit =
            Exhibit { rows: vec![row], columns: vec!["a column"], ..all().next().unwrap().clone() };
        let chapter = Chapter { exhibits: vec![exhibit], ..CHAPTERS[0].clone() };
        assert_eq!((chapter.summary().met, chapter.missed().count()), (0, 1), "{value:?}");
    }
}

/// No limit is finer than what the paper's last digit stands for, and a count that is less than
/// one in a thousand is compared with all packets that there were.
#[test]
fn limits_are_as_fine_as_the_papers_digits() {
    for (place, _, value) in scorable().filter(|it| it.2.least != Some(0.0)) {
        let paper = value.paper.unwrap();
        match value.measure {
            Measure::Share => {
                let decimals =
                    paper.to_string().split_once('.').map_or(0, |(_, digits)| digits.len());
                let half_a_digit = 0.5 * 0.1_f64.powi(decimals as i32);
                assert!(
                    half_a_digit <= MET * paper,
                    "{place}: {paper} says too little for a share"
                );
            }
            Measure::PerMillion { of } => assert!(paper < of / 1_000.0, "{place}: {paper} of {of}"),
        }
    }
    let of_packets = scorable().filter(|(_, _, value)| value.measure != Measure::Share).count();
    assert_eq!(of_packets, 3, "Table 1 of the paper on defragmentation counts packets");
}

/// Each number that the model of a paper is made of is among the constants of its page.
/// (Fields of the machines are: the functions that list them take them apart by name.)
#[test]
fn every_constant_is_on_the_page() {
    // How much is run, and what the paper's units are.
    const OF_THE_RUN: [&str; 12] = [
        "AT_ONCE",
        "WRITES",
        "PACKETS",
        "TENTH",
        "LONG",
        "MANY",
        "LARGE_WRITE",
        "NATIVE",
        "ANSWER",
        "MEGABYTE",
        "PROCESSORS",
        "PAGE",
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/reproduce");
    let mut missing = Vec::new();
    for name in ["stp/hosts.rs", "stp/mod.rs", "qpip.rs", "defrag/mod.rs", "clan.rs"] {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        let all = std::fs::read_to_string(folder.join("stp/hosts.rs")).unwrap();
        let text_of_constants = if name.starts_with("stp/") { &all } else { &text };
        let listed: String = text_of_constants
            .split("\nfn ")
            .flat_map(|part| part.split("\npub fn "))
            .filter(|part| part.lines().take(7).any(|line| line.contains("-> Vec<Constant>")))
            .collect();
        for line in text.lines().map(str::trim_start) {
            let line = line.strip_prefix("pub(super) ").unwrap_or(line);
            let Some((constant, kind)) =
                line.strip_prefix("const ").and_then(|l| l.split_once(": "))
            else {
                continue;
            };
            let is_number = ["f64", "u32", "u64", "usize", "Micros", "Nanos", "Seconds"]
                .iter()
                .any(|number| kind.starts_with(number));
            if is_number && !OF_THE_RUN.contains(&constant) && !listed.contains(constant) {
                missing.push(format!("{name}: {constant}"));
            }
        }
    }
    assert!(missing.is_empty(), "not among the constants of the page: {missing:?}");
}

/// Whatever is assumed and can move a value is varied.
#[test]
fn assumed_constants_are_varied() {
    for chapter in CHAPTERS.iter().filter(|chapter| chapter.design.is_some()) {
        let names: Vec<_> = chapter.effects.iter().map(|effect| effect.name).collect();
        let assumed = chapter.constants.iter().filter(|it| it.standing == Provenance::Assumed);
        let apart = [
            "length of the cable, with what is at its ends",
            "window of a connection",
            "frames to be sent that a card holds",
            "slots of a card for frames that came",
            "change of a page table, each page",
        ];
        for constant in assumed.filter(|it| !apart.contains(&it.name)) {
            assert!(names.contains(&constant.name), "{} is not varied", constant.name);
        }
        assert!(!names.is_empty(), "{}", chapter.title());
    }
}

/// Both readings of the defragmentation paper's Table 1 are run: foreign packets that come one
/// by one cost more than as many that come together.
#[test]
fn foreign_packets_are_read_both_ways() {
    let failed = |name: &str| -> Vec<f64> {
        let exhibit = all().find(|it| it.name == name && it.design == Design::Defrag).unwrap();
        exhibit.rows.iter().map(|row| row.values[0].model).collect()
    };
    let (apart, together) = (failed("Table 1"), failed("Table 1, the other reading"));
    assert!(apart[2] > together[1] * 10.0 && together[1] > 0.0, "{apart:?} {together:?}");
}

/// Every row has a value in every column.
#[test]
fn exhibits_are_tables() {
    for exhibit in all() {
        for row in &exhibit.rows {
            assert_eq!(row.values.len(), exhibit.columns.len(), "{}, {}", exhibit.name, row.label);
            let all_finite = row.values.iter().all(|value| value.model.is_finite());
            assert!(all_finite, "{}, {}: {:?}", exhibit.name, row.label, row.values);
        }
    }
}

/// `docs/reproduction.md` is what the model says now.
#[test]
fn the_page_is_what_the_model_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reproduction.md");
    let now = page(&CHAPTERS);
    if std::env::var_os("UPDATE_REPRODUCTION").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = written.lines().zip(now.lines()).position(|(old, new)| old != new);
    assert!(
        written == now,
        "{} is stale, from line {} on: run this test with UPDATE_REPRODUCTION=1",
        path.display(),
        differs.unwrap_or_else(|| written.lines().count().min(now.lines().count())) + 1
    );
}

/// The model of the LANai 9 beside what the words and tables of its paper state.
mod lanai {
    use std::time::Duration;

    use nic_firmware_model::lanai::figures::{
        Access, CHUNKS, Design, Protocol, Stream, Traffic, blocks, receive_side, round_trip,
        stream, transmit_side,
    };
    use nic_firmware_model::lanai::model::Site;
    use nic_firmware_model::lanai::{Helps, Paper, StageCosts};
    use nic_firmware_model::node::SocketCosts;

    fn off(ours: f64, papers: f64) -> f64 {
        ours / papers - 1.0
    }

    /// Tables 2 and 3 are what the costs were taken from: the firmware spends them so.
    #[test]
    fn the_firmware_spends_what_the_tables_say() {
        let sent = transmit_side(&Design::PAPER);
        let data: Vec<f64> = sent.iter().map(|row| row.data).collect();
        let acks: Vec<f64> = sent.iter().map(|row| row.ack).collect();
        near(&data, &[1.0, 2.0, 5.5, 4.5, 5.0, 1.0, 1.0, 1.5]);
        near(&acks, &[1.0, 2.0, 0.0, 0.0, 5.0, 1.0, 1.0, 1.5]);
        let came = receive_side(&Design::PAPER);
        let data: Vec<f64> = came.iter().map(|row| row.data).collect();
        let acks: Vec<f64> = came.iter().map(|row| row.ack).collect();
        near(&data, &[1.0, 1.0, 1.5, 7.0, 5.5, 4.5, 1.5]);
        near(&acks, &[1.0, 1.0, 1.5, 14.0, 0.0, 0.0, 9.0]);
    }

    fn near(ours: &[f64], papers: &[f64]) {
        assert_eq!(ours.len(), papers.len());
        for (ours, papers) in ours.iter().zip(papers) {
            assert!((ours - papers).abs() < 0.06, "{ours} is not {papers}");
        }
    }

    /// Nothing is fitted to round trips.
    #[test]
    fn round_trips_are_the_papers() {
        let without = Design::PAPER.with_firmware_checksum();
        let rows = [
            ("UDP, round trip", round_trip(&without, Protocol::Udp), 73.0, 0.15),
            ("TCP, round trip", round_trip(&without, Protocol::Tcp), 113.0, 0.15),
        ];
        let mut wrong = Vec::new();
        for (name, ours, papers, most) in rows {
            let ours = ours.unwrap();
            println!("{name}: {ours:.1}, the paper {papers} ({:+.1} %)", off(ours, papers) * 100.0);
            if off(ours, papers).abs() > most {
                wrong.push(format!("{name}: {ours:.1}, the paper {papers}"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// Each of the four helps takes time off, and none costs any.
    #[test]
    fn every_help_of_hardware_helps() {
        let without = Design { helps: Helps::default(), ..Design::PAPER };
        let plain = round_trip(&without, Protocol::Tcp).unwrap();
        let none = Helps::default();
        for helps in [
            Helps { doorbells: true, ..none },
            Helps { lookup: true, ..none },
            Helps { arithmetic: true, ..none },
            Helps { checksum: true, ..none },
        ] {
            let helped = round_trip(&Design { helps, ..without }, Protocol::Tcp).unwrap();
            assert!(helped < plain, "{helps:?}: {helped} is not less than {plain}");
        }
        assert_eq!(transmit_side(&without)[0].stage, Paper::Doorbell);
    }

    /// Fitted are 75.6 and 26.4 MB/s, the others follow. No run stands still: a tail that
    /// the receiver had room for once waited a quarter of a second for the sender to ask. And
    /// the hosts are free: "<1% utilization", in all cases.
    #[test]
    fn whole_runs_are_the_papers() {
        let (with, without) = (Design::PAPER, Design::PAPER.with_firmware_checksum());
        let rows = [
            ("16 KiB", stream(&with, 16_384 + 72, CHUNKS), 75.6, 0.03),
            ("16 KiB, sum in firmware", stream(&without, 16_384 + 72, CHUNKS), 26.4, 0.03),
            ("9000", stream(&with, 9_000, CHUNKS), 70.1, 0.15),
            ("1500", stream(&with, 1_500, CHUNKS), 35.4, 0.15),
        ];
        let mut wrong = Vec::new();
        for (name, ours, papers, most) in rows {
            let Stream { rate, busy, pause } = ours.unwrap();
            let off = off(rate, papers);
            println!("{name}: {rate:.1}, the paper {papers} ({:+.1} %)", off * 100.0);
            println!("    hosts busy for {busy:?}, longest pause {pause:?}");
            let is_free = busy.iter().all(|share| (0.0005..0.01).contains(share));
            if off.abs() > most || !is_free || pause > Duration::from_millis(5) {
                wrong.push(format!("{name}: {ours:?}, the paper {papers}"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// With TCP in the card a host pays for its messages, of whatever packets they are made,
    /// and for no acknowledgement. With TCP in the host it pays for each packet.
    #[test]
    fn a_host_pays_for_messages_where_the_card_runs_tcp() {
        const CHUNKS: u64 = 64;
        let bytes = CHUNKS as f64 * 16_384.0;
        let seconds = |Stream { rate, busy, .. }: Stream| busy.map(|it| it * bytes / rate / 1e6);
        let of_messages = CHUNKS as f64 * 1.25e-6;
        for mtu in [1_500, 9_000, 16_456] {
            let [sender, receiver] = seconds(stream(&Design::PAPER, mtu, CHUNKS).unwrap());
            assert!((sender / of_messages - 1.0).abs() < 0.001, "{mtu}: {sender} s");
            // The last one is heard of when the run is over.
            assert!((receiver / of_messages - 1.0).abs() < 0.05, "{mtu}: {receiver} s");
        }
        let packet = Duration::from_micros(15);
        let costs = SocketCosts { packet, ack: Duration::ZERO, copy: Duration::ZERO };
        let sockets = Design { site: Site::Host(costs), host: Duration::ZERO, ..Design::PAPER };
        for (mtu, segments) in [(1_500, 734.3), (9_000, 117.4)] {
            let [sender, _] = seconds(stream(&sockets, mtu, CHUNKS).unwrap());
            let packets = sender / packet.as_secs_f64();
            assert!((packets / segments - 1.0).abs() < 0.1, "{mtu}: {packets} packets");
        }
    }

    /// Acknowledgements are made and taken in the card: where its processor needs longer for
    /// them, the stream is slower and a round trip longer.
    #[test]
    fn the_card_makes_and_takes_acknowledgements() {
        let usual = stream(&Design::PAPER, 1_500, 64).unwrap().rate;
        let slower = |change: fn(&mut StageCosts)| {
            let mut design = Design::PAPER;
            change(&mut design.stages);
            stream(&design, 1_500, 64).unwrap().rate / usual
        };
        // The receiver's processor is the bound; the sender's, which builds headers too, has
        // time to spare.
        let made = slower(|stages| stages.build_tcp *= 4);
        let taken = slower(|stages| stages.update_ack *= 8);
        assert!(made < 0.9, "{made}");
        assert!(taken < 0.9, "{taken}");
    }

    /// Blocks come both ways, and to have several under way pays.
    #[test]
    fn blocks_are_read_and_written() {
        for access in [Access::Read, Access::Write] {
            let rate = |ahead| {
                let filesystem = Duration::ZERO;
                let traffic = Traffic { access, block: 64 << 10, ahead, count: 40, filesystem };
                blocks(&Design::PAPER, 9_000, &traffic).unwrap().rate
            };
            let (one, four) = (rate(1), rate(4));
            println!("{access:?}: {one:.1} MB/s one at a time, {four:.1} with four under way");
            assert!(one < four && four < 250.0, "{access:?}: {one:.1}, {four:.1}");
        }
    }
}

/// Two hosts with Tigon-IIs, measured frame by frame.
mod tigon {
    use std::time::Duration;

    use nic_firmware_model::tigon::figures::{Account, Design, Message, one_way, transfer};

    const WRITE: u32 = 256 << 10;

    fn measured(design: &Design) -> Account {
        transfer(design, 8, WRITE, Duration::ZERO).expect("all of it came")
    }

    /// Table 1, STP write() 4136: 98 MB/s of 2^20 bytes, to which the set-up of a DMA is fitted.
    #[test]
    fn pages_go_as_fast_as_the_paper_measured() {
        let account = transfer(&Design::PAPER, 16, 512 << 10, Duration::ZERO).unwrap();
        let rate = account.rate() / f64::from(1 << 20);
        assert!((rate / 98.0 - 1.0).abs() < 0.03, "{rate} MB/s");
        assert_eq!((account.lost, account.receiver.stus_placed), (0, 16 * 128));
    }

    /// No packet is shorter than the DMA engine takes for one, whichever side it is at.
    #[test]
    fn short_packets_wait_for_the_dma_engine() {
        let account = measured(&Design::PAPER.with_stu(10));
        let packets = account.receiver.stus_placed as f64 / account.seconds;
        assert!((45_000.0..=50_000.0).contains(&packets), "{packets} packets a second");
        assert_eq!((account.lost, account.sender.stus_sent), (0, account.receiver.stus_placed));
    }

    #[test]
    fn the_receiver_is_interrupted_once_for_each_block_and_each_control_operation() {
        let account = measured(&Design::PAPER);
        let blocks = account.receiver.stus_placed / 64;
        assert_eq!(account.blocks, blocks);
        let interrupts = account.receiver.interrupts;
        assert!((blocks..=blocks + account.receiver.heard).contains(&interrupts), "{interrupts}");
    }

    #[test]
    fn a_second_adapter_carries_half_of_it() {
        for design in [Design::PAPER, Design::PAPER.with_stu(10)] {
            // Of one Block there is nothing to share.
            let rate = |design| transfer(&design, 2, 4 * WRITE, Duration::ZERO).unwrap().rate();
            let (one, two) = (rate(design), rate(design.striped(2)));
            assert!((1.8..=2.0).contains(&(two / one)), "{two} beside {one}");
        }
    }

    #[test]
    fn who_touches_the_data_reads_later() {
        let touching = Duration::from_millis(2);
        let idle = measured(&Design::PAPER);
        let busy = transfer(&Design::PAPER, 8, WRITE, touching).unwrap();
        let longer = busy.seconds - idle.seconds;
        assert!((0.015..=0.0165).contains(&longer), "{longer} s for 8 times 2 ms");
        assert_eq!(busy.receiver.stus_placed, idle.receiver.stus_placed);
    }

    /// A Put asks for nothing first.
    #[test]
    fn a_put_is_there_before_a_transfer_is() {
        let put = one_way(&Design::PAPER, Message::Put, 8).unwrap();
        let whole = one_way(&Design::PAPER, Message::Transfer, 8).unwrap();
        assert!(put * 2.0 < whole, "{put} s and {whole} s");
    }

    /// Tables that do not fit into the adapter's memory are no figures.
    #[test]
    fn what_does_not_fit_is_not_measured() {
        let small = Design { sram: 4 << 10, ..Design::PAPER };
        assert_eq!(transfer(&small, 1, WRITE, Duration::ZERO), None);
    }
}
