//! What a program of the operator says of itself at `/metrics`, read as Prometheus reads it.

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt, api::ListParams};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{Context, OPERATOR_NAMESPACE, RELEASE};

const HEALTH_PORT: u16 = 8080;

/// The text of one scrape.
#[derive(Debug, Clone)]
pub struct Scraped(String);

impl Scraped {
    /// (name, address) of the component's pods; one that is on its way out does not count.
    pub async fn pods(context: &Context, component: &str) -> anyhow::Result<Vec<(String, String)>> {
        let pods: Api<Pod> = Api::namespaced(context.client(), OPERATOR_NAMESPACE);
        let of_component = ListParams::default().labels(&format!(
            "app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component={component}"
        ));
        let mut pods = pods.list(&of_component).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        pods.into_iter()
            .map(|pod| {
                let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
                let address =
                    address.with_context(|| format!("{} has an address", pod.name_any()))?;
                Ok((pod.name_any(), address))
            })
            .collect()
    }

    /// Reads the metrics of the pod at this address.
    pub async fn of(address: &str) -> anyhow::Result<Self> {
        let mut stream = TcpStream::connect((address, HEALTH_PORT)).await?;
        let request =
            format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        ensure!(text.starts_with("HTTP/1.1 200"), "{text}");
        Ok(Self(text))
    }

    /// The value of a series, written as it is exposed.
    pub fn value(&self, series: &str) -> Option<String> {
        let line = self.0.lines().find(|line| line.starts_with(series))?;
        Some(line.rsplit(' ').next()?.to_owned())
    }
}
