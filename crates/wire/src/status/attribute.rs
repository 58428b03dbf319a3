//! Attributes of statuses: they tell a client how to handle a status whose number it does not know.

macro_rules! attributes {
    ($($variant:ident $name:literal $since_version:literal $meaning:literal;)*) => {
        /// Property of a status, for clients that do not know its number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Attribute {
            $(
                #[doc = concat!($meaning, ".")]
                $variant,
            )*
        }

        impl Attribute {
            /// Name in the error map.
            pub(super) fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// First version of the error map that has it.
            pub(super) fn since_version(self) -> u16 {
                match self {
                    $(Self::$variant => $since_version,)*
                }
            }
        }
    };
}

attributes! {
    Auth "auth" 1 "Of the reauthentication family";
    ConnStateInvalidated "conn-state-invalidated" 1 "The connection can no longer be used";
    Dcp "dcp" 1 "Of the change stream protocol";
    FetchConfig "fetch-config" 1 "A newer cluster map is needed";
    Internal "internal" 1 "The server is at fault";
    InvalidInput "invalid-input" 1 "The request was wrong";
    ItemDeleted "item-deleted" 1 "The document is deleted";
    ItemLocked "item-locked" 1 "The document is locked";
    ItemOnly "item-only" 1 "Only this document is concerned";
    NoRetry "no-retry" 1 "Trying again is of no use";
    RateLimit "rate-limit" 2 "A limit on the rate of requests";
    RetryLater "retry-later" 1 "To be tried again later";
    RetryNow "retry-now" 1 "To be tried again at once";
    SpecialHandling "special-handling" 1 "The code needs its own handling";
    Subdoc "subdoc" 1 "Of the sub-document family";
    Success "success" 1 "No error";
    Support "support" 1 "The server does not support this, or not for this user";
    SystemConstraint "system-constraint" 2 "A limit of the system";
    Temp "temp" 1 "Goes away by itself";
}
