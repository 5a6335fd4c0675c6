//! Aeron: `aeron:ipc` by its C client, with a media driver in this process.
//!
//! Nobody sleeps for a message with Aeron, and there is no place of a message of more than a
//! fragment: so it has no figures for those who are woken, nor for messages in place.

use std::hint::spin_loop;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rusteron_client::{
    Aeron, AeronContext, AeronExclusivePublication, AeronFragmentClosureAssembler, AeronHeader,
    AeronSubscription, Handlers, IntoCString,
};
use rusteron_media_driver::testing::EmbeddedDriver;

use crate::sides::{End, Kind, Opened, PATIENCE, Place, Waiting, Work};

/// The longest fragment that the driver allows: of the usual one of 1408 bytes a message of
/// 1 MiB would have 745.
const FRAGMENT: usize = 65_504;

/// The folder of the driver, which runs until the process ends.
static FOLDER: OnceLock<std::result::Result<String, String>> = OnceLock::new();

fn driver() -> Result<&'static str> {
    let folder = FOLDER.get_or_init(|| {
        let driver = EmbeddedDriver::launch_with(|context| {
            use rusteron_media_driver::bindings::aeron_threading_mode_enum::AERON_THREADING_MODE_SHARED;
            // It has nothing to do while messages pass: it leaves the cores to those who have.
            context.set_threading_mode(AERON_THREADING_MODE_SHARED)?;
            context.set_shared_idle_strategy(c"sleep-ns")?;
            context.set_ipc_mtu_length(FRAGMENT)?;
            Ok(())
        });
        let driver = driver.map_err(|error| error.to_string())?;
        let folder = driver.dir().to_owned();
        std::mem::forget(driver);
        Ok(folder)
    });
    folder.as_deref().map_err(|error| anyhow!("the media driver does not start: {error}"))
}

/// Nothing else is measured: what lies in memory for it goes.
pub(crate) fn end() {
    if let Some(Ok(folder)) = FOLDER.get() {
        // It is not needed any more, and nobody can be told.
        let _ = std::fs::remove_dir_all(folder);
    }
}

struct Ports {
    publication: AeronExclusivePublication,
    subscription: AeronSubscription,
    assembler: AeronFragmentClosureAssembler,
    /// Both belong to it.
    _client: Aeron,
}

pub(crate) fn open(work: &Work, place: &Place) -> Result<Opened> {
    if work.waiting == Waiting::Sleep || work.kind == Kind::InPlace {
        return Ok(None);
    }
    let context = AeronContext::new()?;
    context.set_dir(&driver()?.into_c_string())?;
    let client = Aeron::new(&context)?;
    client.start()?;
    let stream = |way: bool| place.number as i32 * 2 + i32::from(way);
    let publication = client
        .async_add_exclusive_publication(c"aeron:ipc", stream(place.is_first))?
        .poll_blocking(PATIENCE)?;
    let subscription = client
        .async_add_subscription(
            c"aeron:ipc",
            stream(!place.is_first),
            Handlers::NONE,
            Handlers::NONE,
        )?
        .poll_blocking(PATIENCE)?;
    let deadline = Instant::now() + PATIENCE;
    while !publication.is_connected() || !subscription.is_connected() {
        ensure!(Instant::now() < deadline, "the two ends do not find each other");
        std::thread::sleep(Duration::from_millis(1));
    }
    place.meet()?;
    let assembler = AeronFragmentClosureAssembler::new()?;
    Ok(Some(Box::new(Ports { publication, subscription, assembler, _client: client })))
}

/// Where the next message goes.
struct Room<'a> {
    into: &'a mut [u8],
    came: Option<usize>,
}

fn take(room: &mut Room<'_>, message: &[u8], _: AeronHeader) {
    room.came = Some(message.len());
    if let Some(into) = room.into.get_mut(..message.len()) {
        into.copy_from_slice(message);
    }
}

impl End for Ports {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let began = Instant::now();
        loop {
            match self.publication.offer(message) {
                Ok(_) => return Ok(()),
                Err(error) if error.is_retryable() => spin_loop(),
                Err(error) => return Err(error).context("Aeron does not take a message"),
            }
            ensure!(began.elapsed() < PATIENCE, "Aeron takes no message");
        }
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<()> {
        /// This many looks pass between two at the clock.
        const LOOKS: u32 = 1 << 16;
        let deadline = Instant::now() + PATIENCE;
        let expected = into.len();
        let mut room = Room { into, came: None };
        for look in 1_u32.. {
            // One fragment at a time: a message that is behind this one stays where it is.
            let fragments = self.assembler.poll(&self.subscription, &mut room, take, 1)?;
            if let Some(came) = room.came {
                ensure!(came == expected, "a message of {came} bytes");
                return Ok(());
            }
            if fragments == 0 {
                spin_loop();
            }
            if look % LOOKS == 0 && Instant::now() > deadline {
                break;
            }
        }
        bail!("no message came")
    }
}
