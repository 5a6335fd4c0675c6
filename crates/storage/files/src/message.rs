//! Messages and structures as they are declared: their encoding follows the declaration.

/// A structure whose fields lie one after another.
macro_rules! fields {
    (
        $(#[$outer:meta])*
        pub struct $name:ident { $($(#[$inner:meta])* pub $field:ident: $kind:ty,)* }
    ) => {
        $(#[$outer])*
        pub struct $name { $($(#[$inner])* pub $field: $kind,)* }

        impl $crate::wire::Wire for $name {
            fn put(&self, out: &mut alloc::vec::Vec<u8>) {
                $($crate::wire::Wire::put(&self.$field, out);)*
            }

            fn get(
                reader: &mut $crate::wire::Reader<'_>,
            ) -> Result<Self, $crate::ProtocolError> {
                Ok(Self { $($field: $crate::wire::Wire::get(reader)?,)* })
            }
        }
    };
}

/// An enumeration whose variants lie behind their number.
macro_rules! messages {
    (
        $(#[$outer:meta])*
        pub enum $name:ident {
            $(
                $(#[$variant_doc:meta])*
                $number:literal $variant:ident
                { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* }
            )*
        }
    ) => {
        $(#[$outer])*
        pub enum $name {
            $($(#[$variant_doc])* $variant { $($(#[$field_doc])* $field: $kind,)* },)*
        }

        impl $crate::wire::Wire for $name {
            fn put(&self, out: &mut alloc::vec::Vec<u8>) {
                match self {
                    $(Self::$variant { $($field),* } => {
                        let number: u16 = $number;
                        $crate::wire::Wire::put(&number, out);
                        $($crate::wire::Wire::put($field, out);)*
                    })*
                }
            }

            fn get(
                reader: &mut $crate::wire::Reader<'_>,
            ) -> Result<Self, $crate::ProtocolError> {
                match <u16 as $crate::wire::Wire>::get(reader)? {
                    $($number => Ok(Self::$variant {
                        $($field: $crate::wire::Wire::get(reader)?,)*
                    }),)*
                    other => Err($crate::ProtocolError::Kind(other)),
                }
            }
        }
    };
}

pub(crate) use {fields, messages};
