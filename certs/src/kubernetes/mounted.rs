//! A server whose certificate someone else keeps, in mounted files: read again when they change, served when they are good, and where
//! asked their authority is published.
//!
//! A pair that is broken, out of date or for another name is told and not served; what was served stays. A sound new one waits until
//! the places trust it, so that a change of authority has no gap, unless the old one is not believed any more either.
//!
//! Replicas see new files up to minutes apart. So the authority is added to what a place holds and never takes another's room: only
//! what has expired is left out.

use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use futures::stream::{StreamExt, select_all};
use jiff::Timestamp;
use kube::Client;

use super::bundle::Place;
use super::error::{KeeperError, MountError};
use super::keeper::Standing;
use super::places::{Places, Told};
use super::serving;
use crate::files::{CertificateFiles, Contents};
use crate::{HotResolver, Pair, verify_server};

/// How often the files are looked at.
const LOOK_AT_FILES: Duration = Duration::from_secs(2);
/// How often all is looked at again though nothing was heard: dates pass.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(30);

/// Who publishes the authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publish {
    /// We do, from `ca.crt`.
    Ours,
    /// Someone else does (cert-manager's injector), or it need not be.
    Theirs,
}

#[derive(Clone, Debug)]
pub struct MountSettings {
    pub directory: PathBuf,
    /// The name the API server asks for in the handshake.
    pub server_name: String,
    /// Where the API server must find trust in us; none where it has its own reasons to.
    pub places: Vec<Place>,
    pub publish: Publish,
}

/// See the module.
pub struct MountedKeeper {
    settings: MountSettings,
    files: CertificateFiles,
    places: Places,
    resolver: HotResolver,
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    served: Option<Pair>,
    /// Sound, and not served yet.
    next: Option<Pair>,
    /// PEM, to be published.
    authority: Option<Vec<u8>>,
    /// What is wrong with the files as they are.
    refused: Option<String>,
    was_ready: bool,
}

impl std::fmt::Debug for MountedKeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MountedKeeper")
            .field("settings", &self.settings)
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}

impl MountedKeeper {
    /// Reads the files. Bad ones are no reason to end, as they may become good: until then every handshake is refused. A directory
    /// that is not there is a wrong flag.
    pub fn start(
        client: Client,
        settings: MountSettings,
        resolver: HotResolver,
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> Result<Self, KeeperError> {
        if !settings.directory.is_dir() {
            return Err(KeeperError::NoDirectory(settings.directory));
        }
        let mut keeper = Self {
            files: CertificateFiles::new(settings.directory.clone()),
            places: Places::new(client, &settings.places, settings.server_name.clone()),
            resolver,
            clock: Box::new(clock),
            served: None,
            next: None,
            authority: None,
            refused: None,
            was_ready: false,
            settings,
        };
        keeper.look();
        keeper.serve_next();
        Ok(keeper)
    }

    /// Keeps things right until the process ends, and tells `report` how they stand each time something changed.
    pub async fn run(mut self, report: impl Fn(&Standing)) -> Result<Infallible, KeeperError> {
        // A stream without end: with no places there is nothing to hear.
        let watches: Vec<_> = self.places.watches().collect();
        let silent = futures::stream::pending::<Told>().boxed();
        let mut events = select_all(watches.into_iter().chain([silent]));
        loop {
            let pause = match self.publish().await {
                Ok(()) => LOOK_AT_CLOCK,
                Err(error) if !self.was_ready && error.is_forbidden() => return Err(error),
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot publish the authority yet"
                    );
                    LOOK_AT_FILES
                }
            };
            self.serve_next();
            let standing = self.standing();
            self.was_ready |= standing.problem.is_none();
            report(&standing);
            let again = tokio::time::sleep(pause);
            tokio::pin!(again);
            loop {
                tokio::select! {
                    told = events.next() => {
                        let (place, told) = told.ok_or(KeeperError::WatchesEnded)?;
                        self.hear(place, told)?;
                        break;
                    }
                    () = tokio::time::sleep(LOOK_AT_FILES) => if self.look() { break },
                    () = &mut again => break,
                }
            }
        }
    }

    fn hear(
        &mut self,
        place: Place,
        told: Result<Option<super::bundle::Trusting>, kube::runtime::watcher::Error>,
    ) -> Result<(), KeeperError> {
        match told {
            Ok(object) => self.places.saw(place, object.as_ref()),
            Err(source) => {
                let error = KeeperError::Watch {
                    what: place.to_string(),
                    source: Box::new(source),
                };
                if !self.was_ready && error.is_forbidden() {
                    return Err(error);
                }
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "watch interrupted"
                );
            }
        }
        Ok(())
    }

    /// Reads the files, and says whether there is anything new about them.
    fn look(&mut self) -> bool {
        let read = match self.files.changed() {
            Ok(None) => return false,
            Ok(Some(contents)) => self.accept(&contents),
            Err(error) => Err(MountError::from(error)),
        };
        match read {
            Ok(pair) => {
                tracing::info!(
                    directory = %self.settings.directory.display(),
                    expires = %pair.validity().not_after,
                    "certificate read"
                );
                self.next = Some(pair);
                self.refused = None;
                true
            }
            Err(error) => {
                let why = words(&error);
                // A file that stays unreadable is told once.
                if self.refused.as_ref() == Some(&why) {
                    return false;
                }
                tracing::error!(
                    directory = %self.settings.directory.display(),
                    still_serving = self.served.is_some(),
                    "certificate refused: {why}"
                );
                self.refused = Some(why);
                true
            }
        }
    }

    fn accept(&mut self, contents: &Contents) -> Result<Pair, MountError> {
        let (now, name) = ((self.clock)(), &self.settings.server_name);
        let pair = Pair::from_pem(&contents.certificate, &contents.key)?;
        pair.is_for(name, now)?;
        if self.settings.publish == Publish::Ours {
            let authority = contents.authority.as_ref().ok_or(MountError::NoAuthority)?;
            // Published, an authority that did not sign this leaf would make every API server turn away.
            verify_server(pair.chain(), authority, name, now).map_err(MountError::Authority)?;
            self.authority = Some(authority.clone());
        }
        Ok(pair)
    }

    async fn publish(&mut self) -> Result<(), KeeperError> {
        let Some(authority) = self.authority.as_deref() else {
            return Ok(());
        };
        let now = (self.clock)();
        let due = self.places.due(|trust| trust.patch_adding(authority, now));
        self.places.write(&due).await
    }

    fn serve_next(&mut self) {
        let Some(next) = &self.next else {
            return;
        };
        let problem = |pair: &Pair| {
            let (name, trust) = (&self.settings.server_name, self.places.trust());
            serving::problem(pair.chain(), name, trust, (self.clock)())
        };
        let old_is_believed = |old: &Pair| problem(old).is_none();
        if problem(next).is_some() && self.served.as_ref().is_some_and(old_is_believed) {
            return;
        }
        self.resolver.serve(next.certified_key());
        tracing::info!(expires = %next.validity().not_after, "serving a new certificate");
        self.served = self.next.take();
    }

    fn standing(&self) -> Standing {
        let now = (self.clock)();
        let name = &self.settings.server_name;
        let problem = match &self.served {
            None => Some(format!(
                "no usable certificate in {}: {}",
                self.settings.directory.display(),
                self.refused.as_deref().unwrap_or("not read yet")
            )),
            Some(pair) => pair
                .is_for(name, now)
                .err()
                .map(|error| words(&error))
                .or_else(|| serving::problem(pair.chain(), name, self.places.trust(), now)),
        };
        Standing {
            problem,
            leaf_expires: self.served.as_ref().map(|pair| pair.validity().not_after),
            authority_expires: None,
        }
    }
}

/// An error with its causes in one line.
fn words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.contains(&more) {
            words.push_str(": ");
            words.push_str(&more);
        }
        cause = error.source();
    }
    words
}
