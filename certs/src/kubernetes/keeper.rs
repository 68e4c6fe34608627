//! The loop that keeps one server's trust right: authority in its Secret, leaf in memory, bundle in every place that must hold it.
//!
//! Several replicas run it at once. Every change of the Secret carries its resourceVersion, so one of them wins and the others read
//! again; before a bundle is written the Secret is read afresh, so that a replica that is behind never puts an old bundle back.
//! At rest it writes nothing.

use std::convert::Infallible;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt, select_all};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};

use super::bundle::Place;
use super::error::KeeperError;
use super::obtain::{obtain, subject};
use super::places::{Places, Told};
use super::secret::{SecretContent, SecretStore};
use super::serving;
use crate::{
    AuthoritySet, CertError, HotResolver, Jitter, Leaf, LeafRequest, Name, RotationPolicy,
    RotationStep, Usage,
};

/// Wall clock is looked at least this often: a sleeping machine or a clock that is set must not delay a renewal.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(30);
/// How soon a failed write is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// What to keep, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    pub namespace: String,
    pub secret_name: String,
    /// The Service in front of the server: its name is what the API server asks for.
    pub service_name: String,
    pub places: Vec<Place>,
    pub rotation: RotationPolicy,
    pub leaf_lifetime: Duration,
    pub jitter: Jitter,
}

impl Settings {
    /// The name the API server asks for in the handshake.
    pub fn server_name(&self) -> String {
        format!("{}.{}.svc", self.service_name, self.namespace)
    }

    fn leaf(&self) -> Result<LeafRequest, CertError> {
        let full = self.server_name();
        let names = [full.clone(), format!("{full}.cluster.local")]
            .iter()
            .map(|name| name.parse::<Name>())
            .collect::<Result<Vec<_>, _>>()?;
        Ok(LeafRequest {
            common_name: full,
            names,
            usage: Usage::Server,
            lifetime: self.leaf_lifetime,
        })
    }
}

/// How things stand, for readiness and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Why an API server could not verify us now, place by place; none when all can.
    pub problem: Option<String>,
    /// None while there is none.
    pub leaf_expires: Option<Timestamp>,
    /// None where it is not ours to know.
    pub authority_expires: Option<Timestamp>,
}

/// See the module.
pub struct Keeper {
    settings: Settings,
    store: SecretStore,
    resolver: HotResolver,
    clock: Box<dyn Fn() -> Timestamp + Send + Sync>,
    secret: Secret,
    set: AuthoritySet,
    leaf: Leaf,
    leaf_signer: String,
    places: Places,
    /// Once ready, no error is fatal any more.
    was_ready: bool,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper")
            .field("settings", &self.settings)
            .field("trust", self.places.trust())
            .finish_non_exhaustive()
    }
}

enum Event {
    Secret(Result<Option<Secret>, watcher::Error>),
    Place(Told),
}

/// Whether there is more to do at once, or only when something changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tended {
    Rest { until: Timestamp },
    Again,
}

impl Keeper {
    /// Reads the authority, or makes it, and puts the first leaf in the resolver: from here on handshakes succeed.
    pub async fn start(
        client: Client,
        settings: Settings,
        resolver: HotResolver,
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> Result<Self, KeeperError> {
        let store = SecretStore::new(client.clone(), &settings.namespace, &settings.secret_name);
        let (secret, set) = obtain(&store, &settings, &clock, None).await?;
        let leaf = set.signer().issue(&settings.leaf()?, clock())?;
        resolver.swap(&leaf)?;
        Ok(Self {
            places: Places::new(client, &settings.places, settings.server_name()),
            leaf_signer: set.signer().certificate_pem().to_owned(),
            store,
            resolver,
            clock: Box::new(clock),
            secret,
            set,
            leaf,
            settings,
            was_ready: false,
        })
    }

    /// Keeps things right until the process ends, and tells `report` how they stand each time it has looked.
    ///
    /// What is forbidden before it was ever ready is fatal: it will not become allowed by waiting. Later it is retried, since a
    /// server that can still answer must.
    pub async fn run(mut self, report: impl Fn(&Standing)) -> Result<Infallible, KeeperError> {
        let mut events = self.events();
        loop {
            let until = loop {
                match self.tend().await {
                    Ok(Tended::Again) => {}
                    Ok(Tended::Rest { until }) => break until,
                    Err(error) if self.is_fatal(&error) => return Err(error),
                    Err(error) => {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "cannot keep the certificates right yet"
                        );
                        break (self.clock)() + TRY_AGAIN;
                    }
                }
            };
            let standing = self.standing();
            self.was_ready |= standing.problem.is_none();
            report(&standing);
            let pause =
                Duration::try_from(until.duration_since((self.clock)())).unwrap_or_default();
            let pause = pause.clamp(Duration::from_millis(100), LOOK_AT_CLOCK);
            tokio::select! {
                event = events.next() => self.hear(event.ok_or(KeeperError::WatchesEnded)?).await?,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn events(&self) -> impl StreamExt<Item = Event> + Unpin + use<> {
        let secret: BoxStream<'static, Event> =
            watcher::watch_object(self.store.api(), self.store.name())
                .default_backoff()
                .map(Event::Secret)
                .boxed();
        let places = self
            .places
            .watches()
            .map(|told| told.map(Event::Place).boxed());
        select_all(std::iter::once(secret).chain(places))
    }

    async fn hear(&mut self, event: Event) -> Result<(), KeeperError> {
        match event {
            Event::Secret(Ok(secret)) => {
                let adopted = match secret {
                    Some(secret) => self.adopt(secret).await,
                    None => self.adopt_fresh().await,
                };
                match adopted {
                    Err(error) if self.is_fatal(&error) => Err(error),
                    Err(error) => {
                        tracing::error!(
                            error = &error as &dyn std::error::Error,
                            "authority kept from memory"
                        );
                        Ok(())
                    }
                    Ok(()) => Ok(()),
                }
            }
            Event::Place((place, Ok(object))) => {
                self.places.saw(place, object.as_ref());
                Ok(())
            }
            Event::Secret(Err(source)) => self.watch_failed(self.secret_words(), source),
            Event::Place((place, Err(source))) => self.watch_failed(place.to_string(), source),
        }
    }

    fn secret_words(&self) -> String {
        format!("Secret {}", self.store.full_name())
    }

    fn watch_failed(&self, what: String, source: watcher::Error) -> Result<(), KeeperError> {
        let error = KeeperError::Watch {
            what,
            source: Box::new(source),
        };
        if self.is_fatal(&error) {
            return Err(error);
        }
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "watch interrupted"
        );
        Ok(())
    }

    fn is_fatal(&self, error: &KeeperError) -> bool {
        !self.was_ready && error.is_forbidden()
    }

    /// Takes over what another replica, or a person, put into the Secret. A broken one is told and not obeyed: the authority in
    /// memory stays good for what it is needed for.
    async fn adopt(&mut self, secret: Secret) -> Result<(), KeeperError> {
        if secret.resource_version() == self.secret.resource_version() {
            return Ok(());
        }
        match self.store.content(&secret) {
            Ok(SecretContent::Sound(set)) => {
                self.secret = secret;
                self.set = *set;
                Ok(())
            }
            Ok(SecretContent::Empty | SecretContent::KeyLost { .. }) => self.adopt_fresh().await,
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "authority kept from memory"
                );
                self.secret = secret;
                Ok(())
            }
        }
    }

    /// Reads the Secret again; where it is gone, a new authority takes over with the one in memory still trusted.
    async fn adopt_fresh(&mut self) -> Result<(), KeeperError> {
        let trusted = self.set.signer().certificate_pem().to_owned();
        let (secret, set) = obtain(&self.store, &self.settings, &self.clock, Some(trusted)).await?;
        self.secret = secret;
        self.set = set;
        Ok(())
    }

    async fn tend(&mut self) -> Result<Tended, KeeperError> {
        let now = (self.clock)();
        let step = self.set.step(
            now,
            serving::seen(&self.set, self.places.trust()),
            &self.settings.rotation,
            self.settings.jitter,
        );
        let RotationStep::Wait { until } = step else {
            return self.rotate(step, now).await;
        };
        self.renew_leaf(now)?;
        if self.publish().await? == Tended::Again {
            return Ok(Tended::Again);
        }
        let renew = crate::renew_at(self.leaf.validity(), self.settings.jitter);
        Ok(Tended::Rest {
            until: until.min(renew),
        })
    }

    async fn rotate(&mut self, step: RotationStep, now: Timestamp) -> Result<Tended, KeeperError> {
        let Some(secret) = self.store.read().await? else {
            self.adopt_fresh().await?;
            return Ok(Tended::Again);
        };
        if secret.resource_version() != self.secret.resource_version() {
            self.adopt(secret).await?;
            return Ok(Tended::Again);
        }
        let SecretContent::Sound(set) = self.store.content(&secret)? else {
            self.adopt_fresh().await?;
            return Ok(Tended::Again);
        };
        let set = set.take(step, &subject(now), now, &self.settings.rotation)?;
        if let Some(secret) = self.store.replace(&secret, &set).await? {
            tracing::info!(?step, secret = self.store.full_name(), "authority rotated");
            self.secret = secret;
            self.set = set;
        }
        Ok(Tended::Again)
    }

    fn renew_leaf(&mut self, now: Timestamp) -> Result<(), KeeperError> {
        if !serving::leaf_is_due(
            &self.leaf,
            &self.leaf_signer,
            &self.set,
            self.places.trust(),
            now,
            self.settings.jitter,
        ) {
            return Ok(());
        }
        let leaf = self.set.signer().issue(&self.settings.leaf()?, now)?;
        self.resolver.swap(&leaf)?;
        tracing::info!(expires = %leaf.validity().not_after, "serving a new certificate");
        self.set
            .signer()
            .certificate_pem()
            .clone_into(&mut self.leaf_signer);
        self.leaf = leaf;
        Ok(())
    }

    async fn publish(&mut self) -> Result<Tended, KeeperError> {
        let bundle = self.set.bundle_pem();
        let due = self.places.due(|trust| trust.patch(bundle.as_bytes()));
        if due.is_empty() {
            return Ok(Tended::Rest {
                until: Timestamp::MAX,
            });
        }
        match self.store.read().await? {
            Some(secret) if secret.resource_version() == self.secret.resource_version() => {}
            Some(secret) => {
                self.adopt(secret).await?;
                return Ok(Tended::Again);
            }
            None => {
                self.adopt_fresh().await?;
                return Ok(Tended::Again);
            }
        }
        self.places.write(&due).await?;
        Ok(Tended::Rest {
            until: Timestamp::MAX,
        })
    }

    fn standing(&self) -> Standing {
        Standing {
            problem: serving::problem(
                self.leaf.chain(),
                &self.settings.server_name(),
                self.places.trust(),
                (self.clock)(),
            ),
            leaf_expires: Some(self.leaf.validity().not_after),
            authority_expires: Some(self.set.signer().validity().not_after),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leaf_names_the_service_as_the_api_server_asks_for_it() {
        let settings = Settings {
            namespace: "ns".to_owned(),
            secret_name: "ca".to_owned(),
            service_name: "w".to_owned(),
            places: Vec::new(),
            rotation: RotationPolicy::default(),
            leaf_lifetime: Duration::from_hours(1),
            jitter: Jitter::NONE,
        };
        assert_eq!(settings.server_name(), "w.ns.svc");
        let names: Vec<String> = settings
            .leaf()
            .unwrap()
            .names
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(names, ["w.ns.svc", "w.ns.svc.cluster.local"]);
    }
}
