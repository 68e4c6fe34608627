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
    /// None: not seen yet, or it does not exist.
    trust: BTreeMap<Place, Option<Trust>>,
}

impl Places {
    pub(super) fn new(client: Client, places: &[Place]) -> Self {
        Self {
            client,
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

    pub(super) fn saw(&mut self, place: Place, object: Option<&Trusting>) {
        self.trust.insert(place, object.map(Trust::of));
    }

    /// The patches that `needs` asks for, place by place.
    pub(super) fn due(&self, needs: impl Fn(&Trust) -> Option<Value>) -> Vec<(Place, Value)> {
        self.trust
            .iter()
            .filter_map(|(place, trust)| Some((place.clone(), needs(trust.as_ref()?)?)))
            .collect()
    }

    /// At once, not one after the other: each is a round trip on the way to ready.
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
            let object = written.map_err(|source| KeeperError::Place {
                verb: "publish the authority in",
                place: place.clone(),
                source: Box::new(source),
            })?;
            tracing::info!(%place, "authority published");
            self.trust.insert(place.clone(), Some(Trust::of(&object)));
        }
        Ok(())
    }

    fn api(&self, place: &Place) -> Api<Trusting> {
        Api::all_with(self.client.clone(), &place.resource())
    }
}
