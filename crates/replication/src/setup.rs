//! The setup of a replica's connection before the first stream: login, bucket, settings of the producer. It sends
//! one request at a time and waits for each answer.

use consumer::{ConsumerOptions, Controls, StandingOptions};
use identity::{Hash, Password, Proof, SaltedCache, ScramClient};
use registry::{PROMOTED, REGISTER};
use wire::dcp::{DcpOpen, OpenFlags};
use wire::request::{Hello, Sasl, SelectBucket};
use wire::{
    Envelope, Feature, FeatureList, Message, Opaque, Opcode, RawParts, Status, TooLong, encode_raw,
};

const AGENT: &[u8] =
    concat!("{\"a\":\"settee-replica/", env!("CARGO_PKG_VERSION"), "\"}").as_bytes();

/// Features requested by HELLO. With Snappy a compressed value comes, and is stored, as compressed. The map is never
/// fetched, so each notice of it means that the map, or the users of the node, may have changed.
const FEATURES: [Feature; 10] = [
    Feature::TCP_NODELAY,
    Feature::XATTR,
    Feature::XERROR,
    Feature::SELECT_BUCKET,
    Feature::SNAPPY,
    Feature::JSON,
    Feature::COLLECTIONS,
    Feature::ALT_REQUEST_SUPPORT,
    Feature::DUPLEX,
    Feature::CLUSTERMAP_CHANGE_NOTIFICATION_BRIEF,
];

/// Features without which replication is impossible: keys need their collections, values their datatype.
const NEEDED: [Feature; 2] = [Feature::COLLECTIONS, Feature::JSON];

/// Facts about the replica and about the node that it follows.
#[derive(Clone)]
pub(super) struct Introduction {
    pub(super) user: String,
    pub(super) password: Password,
    /// Whether this node sends a client certificate. If it belongs to a user, no other login is needed.
    pub(super) certified: bool,
    /// Nonce of the login: random, printable, without commas.
    pub(super) nonce: String,
    pub(super) bucket: String,
    /// Name of the connection. The producer closes another connection of the same name.
    pub(super) name: String,
    /// Settings requested of the producer.
    pub(super) wishes: ConsumerOptions,
    /// Facts about this node for the active one, as JSON; empty for a consumer that does not register.
    pub(super) about: String,
    /// Whether the connection is closed if the other node does not support registration.
    pub(super) must_register: bool,
    /// Whether this connection only sends `about`, as the notice of a promotion.
    pub(super) tells: bool,
    /// Settings of stream requests.
    pub(super) streams: StandingOptions,
}

/// A step of the setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SetupStep {
    Hello,
    Login,
    Prove,
    Select,
    Register,
    Open,
    Control,
    Done,
}

/// Hash function of the SCRAM login. There is no fallback to a weaker one.
const HASH: Hash = Hash::Sha512;

/// Progress of the setup.
pub(super) struct Setup {
    step: SetupStep,
    controls: Controls,
    registers: bool,
    must_register: bool,
    tells: bool,
    login: LoginProgress,
}

/// Progress of the login.
struct LoginProgress {
    /// Copy of [`Introduction::certified`].
    certified: bool,
    scram: ScramClient,
    proof: Option<Proof>,
}

impl Setup {
    pub(super) fn new(about: &Introduction) -> Self {
        Self {
            step: SetupStep::Hello,
            controls: Controls::default(),
            registers: !about.about.is_empty(),
            must_register: about.must_register,
            tells: about.tells,
            login: LoginProgress {
                certified: about.certified,
                scram: ScramClient::new(HASH, &about.user, &about.password, &about.nonce),
                proof: None,
            },
        }
    }

    /// Whether the producer agreed to send prepares.
    pub(super) fn sync_writes(&self) -> bool {
        self.controls.sync_writes()
    }

    pub(super) fn is_done(&self) -> bool {
        self.step == SetupStep::Done
    }

    /// Appends the request of the current step.
    pub(super) fn ask(&mut self, about: &Introduction, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let envelope = Envelope {
            opaque: Opaque(self.opaque().to_be_bytes()),
            ..Envelope::default()
        };
        match self.step {
            SetupStep::Hello => {
                let bytes: Vec<u8> = FEATURES
                    .iter()
                    .flat_map(|feature| feature.0.to_be_bytes())
                    .collect();
                let features = FeatureList::parse(&bytes).expect("pairs of bytes");
                let agent = AGENT;
                Hello { agent, features }.encode(&envelope, out)
            }
            SetupStep::Login => {
                let first = self.login.scram.first_message();
                let login = Sasl {
                    step: false,
                    mechanism: HASH.mechanism().as_bytes(),
                    payload: first.as_bytes(),
                };
                login.encode(&envelope, out)
            }
            SetupStep::Prove => {
                let message = self.login.proof.as_ref().map_or("", |proof| &proof.message);
                let proof = Sasl {
                    step: true,
                    mechanism: HASH.mechanism().as_bytes(),
                    payload: message.as_bytes(),
                };
                proof.encode(&envelope, out)
            }
            SetupStep::Select => {
                let name = about.bucket.as_bytes();
                SelectBucket { name }.encode(&envelope, out)
            }
            SetupStep::Register => {
                let path = if self.tells { PROMOTED } else { REGISTER };
                let parts = RawParts {
                    key: path,
                    value: about.about.as_bytes(),
                    ..RawParts::default()
                };
                encode_raw(Opcode::IOCTL_SET, &envelope, parts, out)
            }
            SetupStep::Open => {
                let open = DcpOpen {
                    flags: OpenFlags::PRODUCER
                        .with(OpenFlags::INCLUDE_XATTRS)
                        .with(OpenFlags::INCLUDE_DELETE_TIMES)
                        .with(OpenFlags::INCLUDE_DELETED_USER_XATTRS),
                    name: about.name.as_bytes(),
                    value: b"",
                };
                open.encode(&envelope, out)
            }
            SetupStep::Control => self.controls.ask(&about.wishes, out),
            SetupStep::Done => Ok(()),
        }
    }

    /// Whether a message is the answer to the current step.
    pub(super) fn expects(&self, opcode: Opcode, opaque: Opaque) -> bool {
        let expected = match self.step {
            SetupStep::Hello => Opcode::HELLO,
            SetupStep::Login => Opcode::SASL_AUTH,
            SetupStep::Prove => Opcode::SASL_STEP,
            SetupStep::Select => Opcode::SELECT_BUCKET,
            SetupStep::Register => Opcode::IOCTL_SET,
            SetupStep::Open => Opcode::DCP_OPEN,
            SetupStep::Control => return self.controls.expects(opcode, opaque),
            SetupStep::Done => return false,
        };
        opcode == expected && opaque == Opaque(self.opaque().to_be_bytes())
    }

    /// Processes the answer to the current step; returns the value of a registration.
    ///
    /// # Errors
    /// The producer refused the request; the text names it, in one line.
    pub(super) fn answered<'v>(
        &mut self,
        status: Status,
        value: &'v [u8],
    ) -> Result<Option<&'v [u8]>, String> {
        let refused = |what: &str| Err(format!("{what} was refused: {}", status.description()));
        let ok = status == Status::SUCCESS;
        let mut reply = None;
        self.step = match self.step {
            SetupStep::Hello if ok => {
                let granted = FeatureList::parse(value).map_err(|error| error.to_string())?;
                for needed in NEEDED {
                    if !granted.iter().any(|feature| feature == needed) {
                        let name = needed.name().unwrap_or("a feature");
                        return Err(format!("the active node does not grant {name}"));
                    }
                }
                SetupStep::Login
            }
            SetupStep::Hello => return refused("the greeting"),
            SetupStep::Login if status == Status::AUTH_CONTINUE => {
                let proof = self.login.scram.answer(value, &mut SaltedCache::default());
                let invalid = |_| "the active node's challenge is not valid";
                self.login.proof = Some(proof.map_err(invalid)?);
                SetupStep::Prove
            }
            SetupStep::Login if status == Status::NOT_SUPPORTED && self.login.certified => {
                SetupStep::Select
            }
            SetupStep::Prove if ok => {
                let proof = self.login.proof.take();
                if proof.is_none_or(|proof| proof.verify(value).is_err()) {
                    return Err("the active node does not know the password".into());
                }
                SetupStep::Select
            }
            SetupStep::Login | SetupStep::Prove => return refused("the login"),
            SetupStep::Select if ok && self.registers => SetupStep::Register,
            SetupStep::Select if ok => SetupStep::Open,
            SetupStep::Select if status == Status::EACCESS => {
                let why = "the other node does not have the bucket yet, or denies it to the user; it is asked again";
                return Err(why.into());
            }
            SetupStep::Select => return refused("the bucket"),
            SetupStep::Register if !ok && self.must_register => return refused("the registration"),
            SetupStep::Register if self.tells => {
                if !ok {
                    return refused("the news of the promotion");
                }
                reply = Some(value);
                SetupStep::Done
            }
            // A node without support for registration can still be followed.
            SetupStep::Register => {
                reply = ok.then_some(value);
                SetupStep::Open
            }
            SetupStep::Open if ok => SetupStep::Control,
            SetupStep::Open => return refused("the change stream"),
            SetupStep::Control => {
                self.controls.answered(status)?;
                if self.controls.is_done() {
                    SetupStep::Done
                } else {
                    SetupStep::Control
                }
            }
            SetupStep::Done => SetupStep::Done,
        };
        Ok(reply)
    }

    fn opaque(&self) -> u32 {
        match self.step {
            SetupStep::Hello => 1,
            SetupStep::Login => 2,
            SetupStep::Prove => 0x100,
            SetupStep::Select => 3,
            SetupStep::Register => 4,
            SetupStep::Open => 5,
            SetupStep::Control | SetupStep::Done => 0,
        }
    }
}
