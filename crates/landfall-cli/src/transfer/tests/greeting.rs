//! Greetings with somebody who speaks another version, or does not know the code.

use landfall::stp::Memory;
use landfall_seal::{Handshake, Pake, Seed};

use super::*;
use crate::transfer::greet::MOST_PROOFS;

#[test]
fn another_version_is_told_which_one_this_is() {
    let endpoint = ways::open_receiver(&choice()).unwrap();
    let listener = endpoint.listen(SERVICE).unwrap();
    let to = ways::addresses_of(&endpoint)[0];
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let endpoint = ways::open_sender(&choice(), to).unwrap();
            let connection = ways::connect(&endpoint, to).unwrap();
            let hello = Greeting::Hello { version: VERSION + 1, first: [0; 48] };
            connection.send(hello.to_bytes()).wait().unwrap();
            let heard = connection.receive(endpoint.memory(64).unwrap()).wait().unwrap();
            Greeting::parse(&heard).unwrap()
        });
        let connection = listener.accept().unwrap();
        let why = greeted(&endpoint, &connection).err().unwrap().to_string();
        assert!(why.contains(&format!("version {}", VERSION + 1)), "{why}");
        let told = Greeting::Refused { version: VERSION, why: Refusal::VERSION };
        assert_eq!(sender.join().unwrap(), told);
    });
}

/// What somebody does in the place of a receiver, when it has a sender's proof.
#[derive(Clone, Copy, PartialEq)]
enum Impostor {
    /// It ends the connection, so that the sender comes again with another proof.
    Ends,
    /// It says that it knows the code.
    Claims,
}

/// A sender of nothing against an impostor who tries a code of its own with each proof; gives
/// how often it could, and what the sender says.
fn impostor(what: Impostor) -> (u32, String) {
    let endpoint = ways::open_receiver(&choice()).unwrap();
    let listener = endpoint.listen(SERVICE).unwrap();
    let to = ways::addresses_of(&endpoint)[0];
    let sender = std::thread::spawn(move || {
        let endpoint = ways::open_sender(&choice(), to).unwrap();
        let (roots, tally) = (Roots::new(&[], "stdin").unwrap(), Arc::default());
        let limits = (&roots, (None, IDLE));
        let ended =
            greet_and_send(&endpoint, &code(), to, limits, (&tally, &OpenConnection::default()));
        ended.err().expect("nobody knows the code").to_string()
    });
    let mut tries = 0;
    while !sender.is_finished() {
        let accepted = listener.accept_within(Duration::from_millis(100)).unwrap();
        let Some(connection) = accepted else { continue };
        let hear = || Greeting::parse(&connection.receive(Memory::zeroed(64)).wait().unwrap());
        let Ok(Greeting::Hello { first, .. }) = hear() else { panic!("no hello") };
        let mut pake = Pake::responder(b"a guess", b"", SUITE, Seed::new([7; 32]));
        pake.handle_message(&first).unwrap();
        let share = pake.poll_message().unwrap().try_into().unwrap();
        let challenge = Greeting::Challenge { version: VERSION, share };
        connection.send(challenge.to_bytes()).wait().unwrap();
        let Ok(Greeting::Proof(proof)) = hear() else { panic!("no proof") };
        assert!(pake.handle_message(&proof).is_err(), "it is no proof of another code");
        tries += 1;
        if what == Impostor::Claims {
            connection.send(Greeting::Welcome([7; 32]).to_bytes()).wait().unwrap();
        }
        connection.abort();
    }
    (tries, sender.join().unwrap())
}

#[test]
fn an_impostor_tries_few_codes_with_one_sender() {
    let (tries, why) = impostor(Impostor::Ends);
    assert_eq!(tries, MOST_PROOFS, "{why}");
    assert!(why.contains("does not go on with the greeting"), "{why}");
}

#[test]
fn a_receiver_that_does_not_know_the_code_gets_nothing() {
    let (tries, why) = impostor(Impostor::Claims);
    assert_eq!(tries, 1, "{why}");
    assert!(why.contains("does not know the code either"), "{why}");
}
