//! The functions that ours stand before: those of libc, or of another such library.

use std::ffi::{CStr, c_void};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};

/// One of them, of the type `F`: looked up once, then an address.
#[derive(Debug)]
pub(crate) struct Next<F> {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
    function: PhantomData<F>,
}

impl<F: Copy> Next<F> {
    /// The next function of this name.
    ///
    /// # Safety
    ///
    /// There is one, and `F` is the type of a pointer to it.
    pub(crate) const unsafe fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()), function: PhantomData }
    }

    pub(crate) fn get(&self) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "a pointer to a function") };
        let mut address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            // SAFETY: a name that ends with zero.
            address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.address.store(address, Ordering::Relaxed);
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
        // SAFETY: libc has it, and this is how it declares it.
        static NEXT: $crate::next::Next<Function> = unsafe { $crate::next::Next::new(NAME) };
        NEXT.get()
    }};
}

pub(crate) use next;
