//! How much memory of each adapter its tables and slots take, by name.
//!
//! ```sh
//! cargo run -p nic-firmware-model --example sizes
//! ```

use nic_firmware_model::clan::Entries;
use nic_firmware_model::hamachi::{Entry, Opens};
use nic_firmware_model::lanai::LanaiSizes;
use nic_firmware_model::machine::{Exhausted, Sizes, Sram};
use nic_firmware_model::tigon::Tables;

/// Slots for this many frames of this length, beside which the tables have to fit.
const fn slots(arrivals: u16, departures: u16, frame: u32) -> Sizes {
    Sizes { arrivals, departures, frame, orders: 256, reports: 512, buffers: 256 }
}

fn main() -> Result<(), Exhausted> {
    let mut tigon = Sram::new(Sram::TIGON);
    slots(64, 32, 9_216).reserve(&mut tigon)?;
    let stus = 64;
    let blocks = Tables::most(&tigon, stus);
    Tables::reserve(&mut tigon, blocks, stus)?;
    print("Tigon-II", &tigon, &format!("{blocks} Blocks of {stus} STUs"));

    let mut lanai = Sram::new(Sram::LANAI);
    let sizes = LanaiSizes::default();
    slots(64, 32, 16_484).reserve(&mut lanai)?;
    sizes.reserve(&mut lanai)?;
    print("LANai 9", &lanai, &format!("{} queue pairs", sizes.entries));

    // The chip has FIFOs and no SRAM: its lists are kept in the memory of the host.
    const DESCRIPTORS: usize = 96;
    const PAGES: usize = 64;
    let mut hamachi = Sram::new(u32::MAX);
    hamachi.reserve("descriptors", DESCRIPTORS, size_of::<Entry>())?;
    hamachi.reserve("open pages, where it steers", PAGES, size_of_val(&Opens::blank()))?;
    print("Hamachi", &hamachi, &format!("a list of {DESCRIPTORS} descriptors"));

    // The paper does not say how much memory its adapter has beside the CAM.
    let mut clan = Sram::new(u32::MAX);
    let entries = Entries::default();
    entries.reserve(&mut clan)?;
    let Entries { apertures, tripwires, .. } = entries;
    print("the CLAN adapter", &clan, &format!("{apertures} apertures, {tripwires} tripwires"));
    Ok(())
}

fn print(name: &str, sram: &Sram, what: &str) {
    println!("tables of {name}: {what}");
    for part in sram.reserved() {
        println!("{:>10} bytes  {}", part.bytes, part.name);
    }
    let all: u32 = sram.reserved().iter().map(|part| part.bytes).sum();
    println!("{all:>10} bytes in all");
}
