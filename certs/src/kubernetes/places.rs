//! The places that must trust a server, as they are now: watched, and put right where asked. Reads them, and writes one field of each.

use std::collections::BTreeMap;

use futures::stream::{BoxStream, StreamExt};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::Value;

use super::FIELD_MANAGER;
use super::bundle::{Place, Trust, Trusting};
use super::error::KeeperError;

/// What a watch told of a place.
pub(super) type Told = (Place, Result<Option<Trusting>, watcher::Error>);

pub(super) struct Places {
    client: Client,
    server_name: String,
    /// None: not seen yet.
    trust: BTreeMap<Place, Option<Trust>>,
}

impl Places {
    /// The places where the server of this name must be trusted.
    pub(super) fn new(client: Client, places: &[Place], server_name: String) -> Self {
        Self {
            client,
            server_name,
            trust: places.iter().map(|place| (place.clone(), None)).collect(),
        }
    }

    pub(super) fn trust(&self) -> &BTreeMap<Place, Option<Trust>> {
        &self.trust
    }

    pub(super) fn watches(&self) -> impl Iterator<Item = BoxStream<'static, Told>> {
        self.trust.keys().map(|place| {
            let (name, place) = (place.name().to_owned(), place.clone());
            watcher::watch_object(self.api(&place), &name)
                .default_backoff()
                .map(move |seen| (place.clone(), seen))
                .boxed()
        })
    }

    /// A place that was there and is gone calls nobody any more, and so wants nothing: whoever still calls us, to convert for instance,
    /// must not lose us over it.
    pub(super) fn saw(&mut self, place: Place, object: Option<&Trusting>) {
        let before = self.trust.get(&place).is_some_and(Option::is_some);
        let trust = match object {
            Some(object) => Some(Trust::of(object, &self.server_name)),
            None => before.then(Trust::default),
        };
        self.trust.insert(place, trust);
    }

    /// The patches that `needs` asks for, place by place.
    pub(super) fn due(&self, needs: impl Fn(&Trust) -> Option<Value>) -> Vec<(Place, Value)> {
        self.trust
            .iter()
            .filter_map(|(place, trust)| Some((place.clone(), needs(trust.as_ref()?)?)))
            .collect()
    }

    /// At once, not one after the other: each is a round trip on the way to ready. A place that was changed meanwhile is left as it is:
    /// its watch tells of it, and then all is looked at again.
    pub(super) async fn write(&mut self, due: &[(Place, Value)]) -> Result<(), KeeperError> {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let writes = due.iter().map(|(place, patch)| {
            let api = self.api(place);
            let params = &params;
            async move {
                let body: Patch<()> = Patch::Json(
                    serde_json::from_value(patch.clone()).map_err(kube::Error::SerdeError)?,
                );
                api.patch(place.name(), params, &body).await
            }
        });
        for ((place, _), written) in due.iter().zip(futures::future::join_all(writes).await) {
            if written.as_ref().is_err_and(is_outrun) {
                tracing::debug!(%place, "was changed by somebody else meanwhile");
                continue;
            }
            let object = written.map_err(|source| KeeperError::Place {
                verb: "publish the authority in",
                place: place.clone(),
                source: Box::new(source),
            })?;
            tracing::info!(%place, "authority published");
            let trust = Trust::of(&object, &self.server_name);
            self.trust.insert(place.clone(), Some(trust));
        }
        Ok(())
    }

    fn api(&self, place: &Place) -> Api<Trusting> {
        Api::all_with(self.client.clone(), &place.resource())
    }
}

/// A test of the patch failed, or the object was written at the same moment.
fn is_outrun(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if [409, 422].contains(&status.code))
}
