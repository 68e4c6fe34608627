//! Data that is lost, wiped, corrupted, or has no room left. Traffic runs all the while.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use etcd_operator_tests::{
    Cluster, Context, Member, Outcome, condition_is, history::Traffic, until,
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{ResourceExt, api::DeleteParams};
use serde_json::json;

use crate::{
    change::tell,
    members::volumes,
    processes::{IMPATIENT, etcd_of, leader, replaced},
};

/// The files below a folder whose name ends like this.
fn files(folder: &Path, ending: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, ending)?);
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    Ok(found)
}

async fn followers(cluster: &Cluster<'_>) -> anyhow::Result<Vec<Member>> {
    let leader = leader(cluster).await?;
    let members = cluster.members().await?;
    Ok(members
        .into_iter()
        .filter(|member| *member != leader)
        .collect())
}

/// A member that joined later has what was written before.
async fn has_the_data(context: &Context, cluster: &Cluster<'_>, newcomer: &Member) -> Outcome {
    let pod = context.api::<Pod>().get(&newcomer.name).await?;
    let answer = cluster.etcd_of(&pod).await?.get("before", None).await?;
    ensure!(
        answer
            .kvs()
            .first()
            .is_some_and(|entry| entry.value() == b"kept"),
        "{} does not have the data",
        newcomer.name
    );
    Ok(())
}

pub(crate) async fn a_member_without_its_claim_or_with_a_wiped_disk_is_replaced_under_a_new_name(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("lose-disk");
    cluster
        .create(&json!({"recovery": {"unreachableAfter": IMPATIENT}}))
        .await?;
    cluster.ready().await?;
    let before = cluster.members().await?;
    cluster.etcd().await?.put("before", "kept", None).await?;
    let traffic = Traffic::start(&cluster).await?;

    let lost = leader(&cluster).await?;
    // The claim first: Kubernetes keeps it until its pod is gone.
    let now = DeleteParams::default();
    let claims = context.api::<PersistentVolumeClaim>();
    let old = claims.get(&lost.name).await?.uid();
    claims.delete(&lost.name, &now).await?;
    context.api::<Pod>().delete(&lost.name, &now).await?;
    until(
        context.api::<PersistentVolumeClaim>(),
        &lost.name,
        "the lost claim to be gone",
        |claim| claim.is_none_or(|claim| claim.uid() != old),
    )
    .await?;
    let after = replaced(context, &cluster, &before, &[&lost]).await?;
    let newcomer = after.iter().find(|member| !before.contains(member));
    has_the_data(context, &cluster, newcomer.context("a newcomer")?).await?;
    traffic.goes_on().await?;

    // As after a disk was exchanged: the claim is there, and nothing is on it.
    let wiped = &followers(&cluster).await?[0];
    let folder = context.folder_of(&wiped.name).await?;
    let process = etcd_of(context, &wiped.name).await?;
    process.freeze()?;
    for entry in fs::read_dir(&folder)? {
        fs::remove_dir_all(entry?.path())?;
    }
    process.kill()?;
    replaced(context, &cluster, &after, &[wiped]).await?;
    traffic.goes_on().await?;
    tell(
        "a claim and its pod deleted, then a disk wiped",
        &traffic.stop().await?,
    );
    Ok(())
}

pub(crate) async fn members_whose_data_is_corrupted_are_replaced(context: &Context) -> Outcome {
    let cluster = context.cluster("corrupt");
    cluster
        .create(&json!({"size": 5, "recovery": {"unreachableAfter": IMPATIENT}}))
        .await?;
    cluster.ready().await?;
    let before = cluster.members().await?;
    cluster.etcd().await?.put("before", "kept", None).await?;
    let traffic = Traffic::start(&cluster).await?;

    let followers = followers(&cluster).await?;
    let (torn, flipped) = (&followers[0], &followers[1]);
    for (member, ending) in [(torn, "/member/snap/db"), (flipped, ".wal")] {
        let files = files(&context.folder_of(&member.name).await?, ending)?;
        ensure!(!files.is_empty(), "{} has no {ending}", member.name);
        let process = etcd_of(context, &member.name).await?;
        process.freeze()?;
        for file in files {
            let file = OpenOptions::new().read(true).write(true).open(file)?;
            if member == torn {
                file.set_len(5000)?;
            } else {
                flip(&file)?;
            }
        }
        process.kill()?;
    }
    let after = replaced(context, &cluster, &before, &[torn, flipped]).await?;
    for newcomer in after.iter().filter(|member| !before.contains(member)) {
        has_the_data(context, &cluster, newcomer).await?;
    }
    traffic.goes_on().await?;
    tell(
        "two of five members' data corrupted",
        &traffic.stop().await?,
    );
    Ok(())
}

/// Turns bits over within the first records of a log.
fn flip(file: &File) -> io::Result<()> {
    const PLACE: u64 = 64;
    let mut bytes = [0; 64];
    file.read_exact_at(&mut bytes, PLACE)?;
    file.write_all_at(&bytes.map(|byte| !byte), PLACE)
}

/// Takes all the room there is left on a volume that is small, and a file system of its own: never the machine's disk.
fn fill(folder: &Path) -> Outcome {
    const MOST: usize = 1 << 30;
    let (own, around) = (folder.metadata()?, folder.join("..").metadata()?);
    ensure!(
        own.dev() != around.dev(),
        "{} has no bound of its own",
        folder.display()
    );
    let mut file = File::create(folder.join("filler"))?;
    let mut written = 0;
    // Down to the last byte: a smaller piece may fit where a larger one does not.
    for size in [1 << 20, 1 << 12, 1] {
        let piece = vec![1; size];
        while written < MOST {
            match file.write_all(&piece) {
                Ok(()) => written += size,
                Err(error) if error.kind() == io::ErrorKind::StorageFull => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    ensure!(written < MOST, "{} is not small", folder.display());
    Ok(())
}

pub(crate) async fn full_disks_stop_writes_honestly_and_room_brings_them_back(
    context: &Context,
) -> Outcome {
    let cluster = context.cluster("full");
    cluster
        .create(&json!({
            "storage": {"size": "200Mi", "className": "bounded"},
            "options": {"quotaBackend": "64Mi"},
        }))
        .await?;
    let founded = cluster.ready().await?.data["status"]["clusterID"].clone();
    let (members, claims) = (cluster.members().await?, volumes(&cluster).await?);
    let traffic = Traffic::start(&cluster).await?;

    let mut processes = Vec::new();
    for member in &members {
        processes.push(etcd_of(context, &member.name).await?);
    }
    for member in &members {
        fill(&context.folder_of(&member.name).await?)?;
    }
    // etcd writes its log into room it took beforehand. To start, it needs new room, and there is none.
    for process in processes {
        let _ended_of_it_already = process.kill();
    }
    until(
        context.clusters(),
        "full",
        "the status to say that nothing is served",
        |cluster| cluster.is_some_and(|cluster| condition_is(cluster, "Available", "False")),
    )
    .await?;
    cluster
        .change(&json!({"storage": {"size": "400Mi"}}))
        .await?;
    let healed = cluster.ready().await?;
    traffic.goes_on().await?;
    tell("all disks full, then larger ones", &traffic.stop().await?);
    ensure!(
        healed.data["status"]["clusterID"] == founded
            && cluster.members().await? == members
            && volumes(&cluster).await? == claims,
        "members {members:?} or claims {claims:?} changed"
    );
    Ok(())
}
