//! Change streams as the parts of a node see them: producers, consumers, agreed settings, figures, settings.

mod figures;
mod negotiated;
mod oso;
mod producers;
mod settings;

pub use figures::{ProducerFigures, StreamFigures, StreamKey, Totals};
pub use negotiated::{MarkerVersion, NegotiatedSettings, Priority};
pub use oso::OsoBackfill;
pub use producers::{DcpRegistry, Producer, RegisteredConsumer, SharedProducer};
pub use settings::DcpSettings;
