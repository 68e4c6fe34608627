//! The two guards before anything is stored: the webhook, and the API server by itself.

use std::collections::BTreeMap;

use anyhow::ensure;
use etcd_operator_tests::{Context, Outcome};
use futures::{StreamExt, TryStreamExt, stream};

use super::{BESIDE_EACH_OTHER, Stopped, walker::Walker};

/// Where a number is computed, CEL may write it differently; the words before it are the same.
fn beginning(message: &str) -> String {
    message.chars().take(40).collect()
}

/// Refused, with one cause for each thing the judge names and in its very words.
pub(super) async fn by_the_webhook(context: &Context, walkers: &[Walker]) -> Outcome {
    // Owned, because a borrow in a stream of futures is more than the compiler can follow.
    let wrong: Vec<String> = stream::iter(walkers.to_vec())
        .map(|walker| async move {
            let Some(status) = walker.refusal(context, "webhook").await? else {
                return Ok(Some(format!("{walker}: let in")));
            };
            if !status.message.contains("admission webhook") {
                return Ok(Some(format!(
                    "{walker}: not the webhook: {}",
                    status.message
                )));
            }
            let causes = status
                .details
                .map(|details| details.causes)
                .unwrap_or_default();
            let told: Vec<(String, String)> = causes
                .into_iter()
                .map(|cause| (cause.field, cause.message))
                .collect();
            Ok((told != walker.words)
                .then(|| format!("{walker}: {told:?} instead of {:?}", walker.words)))
        })
        .buffer_unordered(BESIDE_EACH_OTHER)
        .try_filter_map(|wrong| async move { anyhow::Ok(wrong) })
        .try_collect()
        .await?;
    ensure!(wrong.is_empty(), "with the webhook:\n{}", wrong.join("\n"));
    Ok(())
}

/// Refused by the API server where the list says that it can, in the same words.
pub(super) async fn by_the_api_server(
    context: &Context,
    walkers: &[Walker],
) -> anyhow::Result<BTreeMap<usize, Stopped>> {
    let answers: Vec<(Walker, Option<String>)> = stream::iter(walkers.to_vec())
        .map(|walker| async move {
            let status = walker.refusal(context, "alone").await?;
            anyhow::Ok((walker, status.map(|status| status.message)))
        })
        .buffer_unordered(BESIDE_EACH_OTHER)
        .try_collect()
        .await?;
    let mut wrong = Vec::new();
    let mut stopped = BTreeMap::new();
    for (walker, refusal) in answers {
        match refusal {
            Some(message) => {
                for (_, words) in &walker.words {
                    if !message.contains(&beginning(words)) {
                        wrong.push(format!(
                            "{walker}: `{}` is not in {message}",
                            beginning(words)
                        ));
                    }
                }
                if !walker.example.by_api_server {
                    wrong.push(format!(
                        "{walker}: said to be beyond the API server, but: {message}"
                    ));
                }
                stopped.insert(walker.number, Stopped::ByApiServer);
            }
            None if walker.example.by_api_server => wrong.push(format!("{walker}: let in")),
            None => {}
        }
    }
    ensure!(
        wrong.is_empty(),
        "without the webhook:\n{}",
        wrong.join("\n")
    );
    Ok(stopped)
}
