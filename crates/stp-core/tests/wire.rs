//! The bytes on the wire: against the document, and for any message and any bytes.

use crate::support::document::{self, Field};
use crate::support::header_properties::check;
use crate::support::messages::{envelope, message};
use crate::support::samples::{self, Sample};
use landfall_placement::Refusal;
use landfall_testkit::corpus::replay;
use landfall_testkit::document::{features, functions_below, unproven};
use proptest::prelude::*;
use stp_core::wire::header::{is_sealed, seal};
use stp_core::wire::message::{ClearToSend, Get, Granted, Offer, State};
use stp_core::wire::{
    Envelope, Flags, HEADER_LEN, Header, LONGEST_HEAD, Message, Op, Reason, hold, proof,
};

fn encode(message: &Message, envelope: Envelope) -> Vec<u8> {
    let mut head = [0; LONGEST_HEAD];
    let len = message.encode(envelope, &mut head).expect("it fits");
    assert_eq!(len, Message::head_len(message.op(), Flags(head[1])));
    head[..len].to_vec()
}

// ---- Against the document ------------------------------------------------------

#[test]
fn the_vectors_of_the_document_are_what_is_encoded() {
    let samples = samples::all();
    let vectors = document::vectors();
    let names = |names: Vec<&str>| names.join("\n");
    assert_eq!(
        names(vectors.iter().map(|vector| vector.name.as_str()).collect()),
        names(samples.iter().map(|sample| sample.name).collect()),
        "each vector has its message, and each message its vector"
    );
    for (vector, sample) in vectors.iter().zip(&samples) {
        let (name, bytes) = (sample.name, &vector.bytes);
        assert_eq!(*bytes, sample.packet(), "{name}");
        assert_eq!(Message::decode(bytes), Ok((sample.envelope, sample.message)), "{name}");
        let payload = &bytes[Message::head_len(sample.op(), Flags(bytes[1]))..];
        assert_eq!(payload, sample.payload, "{name}");
        let has_sum = Header::read(bytes).unwrap().flags().has(Flags::SUM);
        assert_eq!(is_sealed(bytes), has_sum, "{name}");
    }
}

#[test]
fn every_operation_has_a_vector() {
    let samples = samples::all();
    for op in Op::ALL {
        assert!(samples.iter().any(|sample| sample.op() == op), "{op}");
    }
}

#[test]
fn every_field_lies_where_the_document_says() {
    let all = |n: usize| [0xff; 8][..n].to_vec();
    let mut end = 0;
    for Field { name, at, bits } in document::fields() {
        assert_eq!((at.start, at.len() * 8), (end, bits), "{name} follows on the one before");
        end = at.end;
        let mut header = Header::default();
        match name.as_str() {
            "Op" => header.op = 0xff,
            "Flags" => header.flags = 0xff,
            "Param" => header.param = 0xffff.into(),
            "D_Port" => header.d_port = 0xffff.into(),
            "S_Port" => header.s_port = 0xffff.into(),
            "D_Key" => header.d_key = u32::MAX.into(),
            "Cksum" => header.cksum = 0xffff.into(),
            "Sync" => header.sync = 0xffff.into(),
            "B_num" => header.b_num = u32::MAX.into(),
            "Bufx" => header.bufx = u32::MAX.into(),
            "Offset" => header.offset = u32::MAX.into(),
            "T_len" => header.t_len = u64::MAX.into(),
            "D_id" => header.d_id = 0xffff.into(),
            "S_id" => header.s_id = 0xffff.into(),
            _ => panic!("the header has no field {name}"),
        }
        let bytes = zerocopy::IntoBytes::as_bytes(&header);
        assert_eq!(bytes[at.clone()], all(at.len()), "{name}");
        assert!(bytes[..at.start].iter().chain(&bytes[at.end..]).all(|b| *b == 0), "{name}");
    }
    assert_eq!(end, HEADER_LEN);
}

#[test]
fn operations_and_flags_are_those_of_the_document() {
    let operations = document::operations();
    let named: Vec<_> = operations.iter().map(|row| (row.number, row.name.as_str())).collect();
    assert_eq!(named, Op::ALL.map(|op| (op as u8, op.as_str())));
    assert!(Op::from_number(0).is_none() && Op::from_number(21).is_none());
    let flags = [
        ("REJECTED", Flags::REJECTED),
        ("RESEND", Flags::RESEND),
        ("LAST", Flags::LAST),
        ("SUM", Flags::SUM),
        ("LIMITED", Flags::LIMITED),
        ("ANSWER", Flags::ANSWER),
        ("NOTIFY", Flags::NOTIFY),
        ("LINK", Flags::LINK),
    ];
    assert_eq!(document::flags(), flags.map(|(name, flag)| (flag.0, name.to_owned())));
}

#[test]
fn reasons_are_those_of_the_document() {
    let reasons = Reason::ALL.map(|reason| (reason as u8, reason.as_str().to_owned()));
    assert_eq!(document::reasons(), reasons);
    for number in 0..=u8::MAX {
        let reason = Reason::from_number(number);
        assert!(reason as u8 == number || reason == Reason::Refused);
    }
}

/// Does it make a difference when this bit is flipped?
fn means_something(packet: &[u8], at: usize, bit: u8) -> bool {
    let mut changed = packet.to_vec();
    changed[at] ^= 1 << bit;
    Message::decode(&changed) != Message::decode(packet)
}

/// The table of operations in the document says which fields an operation
/// uses: the others are ignored, and each of those means something.
#[test]
fn each_operation_uses_the_fields_that_the_document_says() {
    let fields = document::fields();
    let columns = ["Param", "B_num", "Bufx", "Offset", "T_len", "D_id", "S_id"];
    let samples = samples::all();
    for row in document::operations() {
        let of_op = || samples.iter().filter(|sample| sample.op() as u8 == row.number);
        for (column, cell) in columns.iter().zip(&row.cells[1..]) {
            let at = fields.iter().find(|field| field.name == *column).unwrap().at.clone();
            let is_used = of_op().any(|sample| {
                let packet = sample.packet();
                let mut bits = at.clone().flat_map(|at| (0..8).map(move |bit| (at, bit)));
                bits.any(|(at, bit)| means_something(&packet, at, bit))
            });
            assert_eq!(is_used, !cell.is_empty(), "{} {column}: {cell:?}", row.name);
        }
    }
}

#[test]
fn each_operation_has_the_flags_that_the_document_says() {
    let samples = samples::all();
    for row in document::operations() {
        let of_op = || samples.iter().filter(|sample| sample.op() as u8 == row.number);
        for (bit, name) in document::flags() {
            let accepted = of_op().any(|sample| {
                let mut packet = sample.packet();
                packet[1] |= bit;
                Message::decode(&packet).is_ok()
            });
            let is_listed = name == "SUM" || row.cells[0].contains(&name);
            assert_eq!(accepted, is_listed, "{} {name}", row.name);
        }
    }
}

/// The table of proofs in the document says where each operation has its proof:
/// every bit of the packet counts for it, and without it the packet is none.
#[test]
fn each_operation_has_its_proof_where_the_document_says() {
    let rows = document::proofs();
    for sample in samples::all() {
        let packet = sample.packet();
        let head = &packet[..Message::head_len(sample.op(), Flags(packet[1]))];
        let verdict = proof::check(head, sample.secrets());
        let row = rows
            .iter()
            .find(|(operations, _)| operations.iter().any(|name| sample.name == name.as_str()));
        let Some((_, at)) = row else {
            assert_eq!(verdict, proof::Verdict::Without, "{}", sample.name);
            continue;
        };
        assert_eq!(verdict, proof::Verdict::Right, "{}", sample.name);
        let place = proof::place(Header::read(head).unwrap());
        assert_eq!(place.as_ref(), Some(at), "{}", sample.name);
        for bit in (0..head.len() * 8).filter(|bit| !(12..14).contains(&(bit / 8))) {
            let mut bad = head.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            let verdict = proof::check(&bad, sample.secrets());
            assert_ne!(verdict, proof::Verdict::Right, "{} bit {bit}", sample.name);
        }
        let mut bare = head.to_vec();
        bare[at.clone()].fill(0);
        let verdict = proof::check(&bare, sample.secrets());
        assert_eq!(verdict, proof::Verdict::Missing, "{}", sample.name);
    }
    let named: usize = rows.iter().map(|(operations, _)| operations.len()).sum();
    let proved = |sample: &&Sample| {
        let packet = sample.packet();
        proof::place(Header::read(&packet).unwrap()).is_some()
    };
    assert_eq!(named, samples::all().iter().filter(proved).count(), "each is in one row");
}

#[test]
fn the_tests_that_the_document_names_exist() {
    let features = features(&document::text());
    assert!(features.len() > 30);
    let functions = functions_below(&landfall_testkit::root().join("crates"));
    let wrong = unproven(&features, &functions);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

// ---- Each operation, changed ---------------------------------------------------

#[test]
fn truncation_at_every_length_is_refused() {
    for sample in samples::all() {
        let packet = sample.packet();
        let head_len = Message::head_len(sample.op(), Flags(packet[1]));
        for len in 0..packet.len() {
            let decoded = Message::decode(&packet[..len]);
            let expected = if len < head_len {
                Err(Refusal::Truncated)
            } else {
                Ok((sample.envelope, sample.message))
            };
            assert_eq!(decoded, expected, "{} cut to {len} bytes", sample.name);
            check(&packet[..len]);
        }
    }
}

#[test]
fn every_field_mutated_of_every_operation() {
    let fields = document::fields();
    let words = (HEADER_LEN..LONGEST_HEAD).step_by(4).map(|at| at..at + 4);
    let places: Vec<_> = fields.into_iter().map(|field| field.at).chain(words).collect();
    for sample in samples::all() {
        let packet = sample.packet();
        for at in places.iter().filter(|at| at.end <= packet.len()) {
            let with = |change: &dyn Fn(&mut [u8])| {
                let mut packet = packet.clone();
                change(&mut packet[at.clone()]);
                check(&packet);
            };
            with(&|field| field.fill(0));
            with(&|field| field.fill(0xff));
            for value in 0..=u8::MAX {
                with(&|field| field[0] = value);
                with(&|field| *field.last_mut().unwrap() = value);
            }
            for bit in 0..at.len() * 8 {
                with(&|field| field[bit / 8] ^= 1 << (bit % 8));
            }
        }
    }
}

#[test]
fn padding_behind_a_packet_changes_nothing() {
    for sample in samples::all() {
        for junk in [0x00, 0xff] {
            let mut packet = sample.packet();
            let len = packet.len();
            packet.resize(len + 6, junk);
            let decoded = Message::decode(&packet);
            assert_eq!(decoded, Ok((sample.envelope, sample.message)), "{}", sample.name);
            if let Message::Put { len: payload, .. } = sample.message {
                assert_eq!(HEADER_LEN + payload as usize, len, "a Put says where it ends");
            }
        }
    }
}

#[test]
fn a_flipped_bit_breaks_the_seal() {
    for sample in samples::all() {
        let packet = sample.packet();
        if !is_sealed(&packet) {
            assert!(matches!(sample.op(), Op::Data | Op::Put) && !sample.is_summed);
            continue;
        }
        for bit in 0..packet.len() * 8 {
            let mut packet = packet.clone();
            packet[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_sealed(&packet), "{} bit {bit}", sample.name);
        }
    }
}

#[test]
fn what_must_have_a_checksum_is_refused_without_the_flag() {
    for sample in samples::all() {
        let mut packet = sample.packet();
        packet[1] &= !Flags::SUM.0;
        let is_free = matches!(sample.op(), Op::Data | Op::Put);
        let expected = if is_free { None } else { Some(Refusal::BadChecksum) };
        assert_eq!(Message::decode(&packet).err(), expected, "{}", sample.name);
    }
}

#[test]
fn state_operations_have_the_flags_of_their_topic_only() {
    for sample in samples::all() {
        let Message::RequestStateResponse(state) = sample.message else { continue };
        let allowed = match state {
            State::Connection { .. } => Flags::LINK,
            State::Fetched { .. } | State::Size { .. } => Flags::NONE,
            State::Transfer { .. } => Flags::LAST,
            State::Memory { .. } | State::GetRefused { .. } => Flags::REJECTED,
        };
        for flag in [Flags::LAST, Flags::REJECTED, Flags::LINK] {
            let mut packet = sample.packet();
            packet[1] |= flag.0;
            let is_accepted = Message::decode(&packet).is_ok();
            assert_eq!(is_accepted, allowed.has(flag), "{} with {flag:?}", sample.name);
        }
    }
    let mut packet = document::vector("Request_State_Response get refused");
    packet[1] &= !Flags::REJECTED.0;
    assert_eq!(Message::decode(&packet), Err(Refusal::Malformed), "a refusal is a refusal");
}

#[test]
fn unknown_operations_and_functions_are_unsupported() {
    for number in (0..=u8::MAX).filter(|number| Op::from_number(*number).is_none()) {
        let mut packet = document::vector("Data");
        packet[0] = number;
        assert_eq!(Message::decode(&packet), Err(Refusal::Unsupported), "{number}");
    }
    for function in [0, 9, 255] {
        let mut packet = document::vector("FetchOp add");
        packet[3] = function;
        assert_eq!(Message::decode(&packet), Err(Refusal::Unsupported), "function {function}");
    }
    for width in [0, 1, 2, 16, 0x84] {
        let mut packet = document::vector("FetchOp add");
        packet[2] = width;
        assert_eq!(Message::decode(&packet), Err(Refusal::Malformed), "width {width}");
    }
}

#[test]
fn sizes_that_have_no_place_are_refused() {
    let mut head = [0; LONGEST_HEAD];
    let sample = |name: &str| {
        let found = samples::all().into_iter().find(|sample: &Sample| sample.name == name);
        found.expect(name).message
    };
    let mut wrong = Vec::new();
    if let Message::RequestConnection(offer) = sample("Request_Connection") {
        wrong.push(Message::RequestConnection(Offer { version: 64, ..offer }));
        wrong.push(Message::RequestConnection(Offer { max_stu: 32, ..offer }));
        wrong.push(Message::RequestConnection(Offer { buffer: 32, ..offer }));
        wrong.push(Message::ConnectionAnswer {
            d_id: 1,
            result: Ok(Offer { buffer: u8::MAX, ..offer }),
        });
    }
    if let Message::RequestToSend { s_id, serial, len, opaque, answers, .. } =
        sample("Request_To_Send")
    {
        let (max_block, is_eager) = (32, false);
        wrong.push(Message::RequestToSend {
            s_id,
            serial,
            len,
            max_block,
            opaque,
            answers,
            is_eager,
        });
    }
    if let Message::ClearToSend(grant) = sample("Clear_To_Send") {
        let nothing = Granted::Next { lead: 0, count: 0, behind: 0 };
        wrong.push(Message::ClearToSend(ClearToSend { stu: 0, ..grant }));
        wrong.push(Message::ClearToSend(ClearToSend { block_size: 32, ..grant }));
        wrong.push(Message::ClearToSend(ClearToSend { granted: nothing, ..grant }));
        wrong.push(Message::ClearToSend(ClearToSend { granted: Granted::Again(0), ..grant }));
    }
    if let Message::Get(get) = sample("Get") {
        wrong.push(Message::Get(Get { stu: 0, ..get }));
    }
    assert_eq!(wrong.len(), 10);
    for message in wrong {
        assert_eq!(message.encode(Envelope::default(), &mut head), None, "{message:?}");
    }

    let malformed = |name: &str, at: usize, bytes: &[u8]| {
        let mut packet = document::vector(name);
        packet[at..at + bytes.len()].copy_from_slice(bytes);
        assert_eq!(Message::decode(&packet), Err(Refusal::Malformed), "{name}");
    };
    malformed("Request_To_Send", 2, &[0, 32]);
    malformed("Request_To_Send", 2, &[1, 0]);
    malformed("Get", 2, &[0, 0]);
    malformed("Request_Connection", 24, &[0, 1, 0, 0]);
    malformed("Clear_To_Send", 32, &[0, 0]);
    malformed("Clear_To_Send", HEADER_LEN, &[0, 0]);
    malformed("Clear_To_Send again", 28, &[0; 8]);
    malformed("Request_State memory", 2, &[0, 3]);
    malformed("Request_State_Response memory", 2, &[0, 5]);
    malformed("Request_Answer pending", 1, &[Flags::SUM.0 | Flags::REJECTED.0 | Flags::LIMITED.0]);
    malformed("Request_To_Send", 14, &[0, 3]);
    malformed("Data", 14, &[0, 3]);
}

#[test]
fn a_grant_counts_its_attempts_modulo_64() {
    let Ok((envelope, Message::ClearToSend(grant))) =
        Message::decode(&document::vector("Clear_To_Send"))
    else {
        panic!("it is a grant");
    };
    let later = Message::ClearToSend(ClearToSend { attempt: grant.attempt + 64, ..grant });
    let decoded = Message::decode(&encode(&later, envelope));
    assert_eq!(decoded, Ok((envelope, Message::ClearToSend(grant))));
}

#[test]
fn the_hold_of_the_vector_is_what_the_document_says() {
    let Ok((_, Message::Data { hold, .. })) = Message::decode(&document::vector("Data")) else {
        panic!("it is Data");
    };
    assert_eq!(hold::decode(hold).as_nanos(), 262_272);
    assert_eq!(hold::encode(hold::decode(hold)), hold);
}

#[test]
fn the_corpus_of_the_fuzz_target_decodes_or_is_refused() {
    replay("stp_header", 40, check);
}

// ---- Any message, any bytes ----------------------------------------------------

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn a_message_comes_back_as_it_went(envelope in envelope(), message in message()) {
        let head = encode(&message, envelope);
        prop_assert_eq!(Message::decode(&head), Ok((envelope, message)));
        // What a header without checksum sums up to is anything.
        let has_payload = matches!(message.op(), Op::Data | Op::Put);
        let header = Header::read(&head).expect("it is long enough");
        prop_assert_eq!(header.flags().has(Flags::SUM), !has_payload);
        let is_right = if has_payload { header.cksum == 0 } else { is_sealed(&head) };
        prop_assert!(is_right, "checksum {}", header.cksum);
    }

    #[test]
    fn a_head_that_is_too_short_is_not_written(message in message(), len in 0..LONGEST_HEAD) {
        let needed = encode(&message, Envelope::default()).len();
        let mut head = [0xa5; LONGEST_HEAD];
        let written = message.encode(Envelope::default(), &mut head[..len]);
        prop_assert_eq!(written, (len >= needed).then_some(needed));
        let untouched = written.unwrap_or(0);
        prop_assert!(head[untouched..].iter().all(|byte| *byte == 0xa5));
    }

    #[test]
    fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        check(&bytes);
    }

    /// Bytes that get further than random ones: a known operation, flags it may
    /// have, sizes that are small.
    #[test]
    fn likely_bytes_decode_or_are_refused(
        op in 1..=20u8,
        flags in any::<u8>(),
        mut bytes in prop::collection::vec(any::<u8>(), LONGEST_HEAD),
        small in any::<bool>(),
        repeat in any::<bool>(),
    ) {
        bytes[0] = op;
        bytes[1] = flags & bytes[1] | Flags::SUM.0;
        if small {
            bytes[2] = 0;
            bytes[3] &= 31;
        }
        if repeat {
            bytes.copy_within(18..20, 14);
        }
        check(&bytes);
    }

    #[test]
    fn a_changed_message_decodes_or_is_refused(
        message in message(),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let mut head = encode(&message, Envelope::default());
        let at = at.index(head.len());
        head[at] = value;
        check(&head);
    }

    #[test]
    fn a_sealed_packet_of_any_length_is_sealed(
        message in message(),
        payload in prop::collection::vec(any::<u8>(), 0..200),
        bit in any::<prop::sample::Index>(),
    ) {
        let mut packet = encode(&message, Envelope::default());
        packet.extend(payload);
        packet[12..14].fill(0);
        seal(&mut packet);
        prop_assert!(is_sealed(&packet));
        let bit = bit.index(packet.len() * 8);
        packet[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!is_sealed(&packet));
    }

    #[test]
    fn sealing_what_is_too_short_changes_nothing(bytes in prop::collection::vec(any::<u8>(), 0..14)) {
        let mut sealed = bytes.clone();
        seal(&mut sealed);
        prop_assert_eq!(sealed, bytes);
    }
}
