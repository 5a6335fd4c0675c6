//! The functions that ours stand before: those of libc, or of another such library.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Where such functions are: the loader is not to be asked in the handler of a signal, so
/// all are looked up in the beginning. The linker puts them side by side.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Place {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Place {
    pub(crate) const fn of(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn look_up(&self) -> *mut c_void {
        // SAFETY: a name that ends with zero.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

unsafe extern "C" {
    /// The linker's own names for the ends of a section.
    #[link_name = "__start_landfall_next"]
    static FIRST: [u8; 0];
    #[link_name = "__stop_landfall_next"]
    static END: [u8; 0];
}

/// Looks all of them up.
pub(crate) fn look_up_all() {
    let (mut place, end) = ((&raw const FIRST).cast::<Place>(), (&raw const END).cast::<Place>());
    while place < end {
        // SAFETY: the section has nothing but places in it, one behind the other.
        unsafe {
            (*place).look_up();
            place = place.add(1);
        }
    }
}

/// One of them, of the type `F`.
#[derive(Debug)]
pub(crate) struct Next<F> {
    place: &'static Place,
    function: PhantomData<F>,
}

impl<F: Copy> Next<F> {
    /// The next function of the name of this place.
    ///
    /// # Safety
    ///
    /// There is one, and `F` is the type of a pointer to it.
    pub(crate) const unsafe fn new(place: &'static Place) -> Self {
        Self { place, function: PhantomData }
    }

    pub(crate) fn get(&self) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "a pointer to a function") };
        let mut address = self.place.address.load(Ordering::Relaxed);
        if address.is_null() {
            // Somebody calls before the library began.
            address = self.place.look_up();
        }
        // SAFETY: who made this has promised that the function is there and of this type.
        unsafe { std::mem::transmute_copy(&address) }
    }
}

/// The next function of this name and type.
macro_rules! next {
    ($name:ident: fn($($argument:ty),* $(,)?) -> $result:ty) => {{
        type Function = unsafe extern "C" fn($($argument),*) -> $result;
        const NAME: &std::ffi::CStr =
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name without zeros"),
            };
        #[used]
        #[unsafe(link_section = "landfall_next")]
        static PLACE: $crate::next::Place = $crate::next::Place::of(NAME);
        // SAFETY: libc has it, and this is how it declares it.
        static NEXT: $crate::next::Next<Function> = unsafe { $crate::next::Next::new(&PLACE) };
        NEXT.get()
    }};
}

pub(crate) use next;
