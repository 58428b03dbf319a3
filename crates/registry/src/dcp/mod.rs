//! Change streams as the parts of a node see them: producers, consumers, agreed settings, figures, settings.

mod agreed;
mod figures;
mod oso;
mod producers;
mod settings;

pub use agreed::{Agreed, MarkerVersion, Priority};
pub use figures::{ProducerFigures, StreamFigures, StreamKey, Totals};
pub use oso::OsoBackfill;
pub use producers::{DcpRegistry, Producer, RegisteredConsumer, SharedProducer};
pub use settings::DcpSettings;
