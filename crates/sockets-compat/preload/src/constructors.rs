//! The constructors of this library that the loader has not called yet.
//!
//! A carrier is what a program becomes in one of them, and never comes back to the loader, which
//! would call the rest. Among those is one that finds out which instructions for ciphers the
//! processor has: before it, all is encrypted without any, at a tenth of the speed or less.

use std::ffi::{c_char, c_int, c_void};

/// What the loader gives each of them: what `main` gets.
pub(crate) type Arguments = (c_int, *const *const c_char, *const *const c_char);
pub(crate) type Constructor = extern "C" fn(c_int, *const *const c_char, *const *const c_char);

/// Entries of a dynamic section (ELF): where the constructors' addresses lie, and their length
/// in bytes.
const END: usize = 0;
const INIT_ARRAY: usize = 25;
const INIT_ARRAY_BYTES: usize = 27;

/// Where this constructor's address lies, and those that come after it in its library.
struct Place {
    at: usize,
    rest: Option<(*const Constructor, usize)>,
}

/// Calls those that come after this one, which the loader must not do any more.
pub(crate) fn call_those_after(this: &'static Constructor, arguments: Arguments) {
    let mut place = Place { at: std::ptr::from_ref(this).addr(), rest: None };
    // SAFETY: `look` takes what it is given for a `Place`, which nobody else has meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut place).cast()) };
    let Some((first, count)) = place.rest else { return };
    for nth in 0..count {
        // SAFETY: the loader says that the addresses of constructors of this library lie there, and
        // has relocated them before it called the first. (It is its pointer, not `this`: from a
        // pointer to one of them the compiler may conclude that it reads that one.)
        let next = unsafe { first.add(nth).read() };
        next(arguments.0, arguments.1, arguments.2);
    }
}

/// Looks whether this object is the one.
unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader's description of an object that is loaded, and the caller's `Place`.
    let (info, place) = unsafe { (&*info, &mut *data.cast::<Place>()) };
    let base = info.dlpi_addr as usize;
    for nth in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: there are that many program headers.
        let header = unsafe { &*info.dlpi_phdr.add(nth) };
        if header.p_type != libc::PT_DYNAMIC {
            continue;
        }
        let (mut at, mut bytes) = (0, 0);
        let mut entry = (base + header.p_vaddr as usize) as *const [usize; 2];
        loop {
            // SAFETY: pairs of words, of which the last has the tag 0.
            let [tag, value] = unsafe { entry.read() };
            match tag {
                END => break,
                INIT_ARRAY => at = base + value,
                INIT_ARRAY_BYTES => bytes = value,
                _ => {}
            }
            // SAFETY: that was not the last.
            entry = unsafe { entry.add(1) };
        }
        if (at..at + bytes).contains(&place.at) {
            let nth = (place.at - at) / size_of::<Constructor>() + 1;
            let all = at as *const Constructor;
            // SAFETY: at most the end of them.
            let rest = unsafe { all.add(nth) };
            place.rest = Some((rest, bytes / size_of::<Constructor>() - nth));
            return 1;
        }
    }
    0
}
