//! Starting a cluster: the order in which its parts come up, and bringing back parts that ended.

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::{
    Record,
    component::{self, Component, Started},
    control_plane::{self, file, flag},
    gateway, image_store,
    layout::Layout,
    network, node, pki, ready,
};
use crate::{
    cache,
    programs::{Program, Programs},
    progress,
};

const PLUGINS: &str = "/var/lib/kubelet/device-plugins/kubelet.sock";
const PATIENCE: Duration = Duration::from_secs(30);
const MANIFESTS: [&str; 2] = [
    include_str!("../../manifests/volumes.yaml"),
    include_str!("../../manifests/dns.yaml"),
];

pub fn afresh(layout: &Layout, nodes: u8, programs: &Programs, image_store: &Path) -> Result<()> {
    let record = Record {
        nodes,
        host_port: gateway::free_port()?,
    };
    let nodes = layout.nodes(nodes);
    fs::create_dir_all(layout.logs())?;
    load_kernel_modules();
    network::create(layout, &nodes)?;
    pki::write(layout, &nodes, record.host_port)?;
    let itself = copy_of_this_program(layout)?;

    let mut started = vec![];
    let mut start = |component: Component| -> Result<Vec<Started>> {
        started.push(component.start(layout)?);
        Ok(started.clone())
    };
    start(control_plane::etcd(layout, programs)?)?;
    start(control_plane::api_server(layout, programs)?)?;
    let so_far = start(gateway_component(layout, record.host_port, itself.clone()))?;
    // The machine has time for this while the API server starts.
    for node in &nodes {
        image_store::copy_to(image_store, node)?;
        start(node::runtime(layout, node)?)?;
    }
    ready::api_server(layout, &so_far)?;
    start(control_plane::controller_manager(layout, programs)?)?;
    start(control_plane::scheduler(layout, programs)?)?;
    for node in &nodes {
        // One that was there before would be taken for the next kubelet's.
        let _ = fs::remove_file(PLUGINS);
        let kubelet = start(node::kubelet(layout, node, programs)?)?;
        listens_for_plugins(kubelet.last());
    }
    start(control_plane::proxy(layout, programs)?)?;
    apply(layout, programs)?;
    let all = start(volumes_component(layout, itself))?;
    ready::cluster(layout, &all, record.nodes)?;
    // Written last: a cluster without it never came up, and is started anew.
    let path = layout.state.join("cluster.json");
    cache::appear_whole(&path, |partial| {
        Ok(fs::write(partial, serde_json::to_vec_pretty(&record)?)?)
    })
}

/// All kubelets of a machine listen at this path, whatever their `root-dir`: each takes it from the one before, but one that finds it
/// taken in the very moment of listening ends. Hence they start one after another. What is wrong otherwise, readiness tells.
fn listens_for_plugins(kubelet: Option<&Started>) {
    let since = Instant::now();
    while kubelet.is_some_and(Started::alive)
        && !Path::new(PLUGINS).exists()
        && since.elapsed() < PATIENCE
    {
        thread::sleep(Duration::from_millis(20));
    }
}

/// Starts again what has ended of a cluster that was up, and waits until it is whole.
pub fn again(layout: &Layout, record: &Record) -> Result<()> {
    let all = component::recorded(layout)?;
    let (mut started, ended): (Vec<_>, Vec<_>) = all.into_iter().partition(Started::alive);
    if started.is_empty() {
        bail!("none of its components is running");
    }
    if ended.is_empty() && ready::is_whole(layout, record.nodes) {
        return Ok(());
    }
    let names: Vec<_> = ended
        .iter()
        .map(|ended| ended.component.name.as_str())
        .collect();
    let what = if names.is_empty() {
        "Waiting for".to_owned()
    } else {
        format!("Starting {} again in", names.join(", "))
    };
    progress::step(&format!("{what} cluster `{}`", layout.name), || {
        for ended in &ended {
            started.push(ended.component.start(layout)?);
        }
        ready::api_server(layout, &started)?;
        ready::cluster(layout, &started, record.nodes)
    })
}

/// Where they are built in, or already loaded, this does nothing; where one cannot be loaded, a component's log will say what it misses.
fn load_kernel_modules() {
    for module in ["overlay", "nf_conntrack", "ip_tables", "veth"] {
        let _ = Command::new("modprobe")
            .arg("--quiet")
            .arg(module)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

/// The cluster runs a copy, so that compiling xtask anew does not disturb it.
fn copy_of_this_program(layout: &Layout) -> Result<PathBuf> {
    let copy = layout.state.join("bin/xtask");
    cache::appear_whole(&copy, |partial| {
        fs::copy(env::current_exe()?, partial).context("cannot copy this program")?;
        Ok(())
    })?;
    Ok(copy)
}

fn gateway_component(layout: &Layout, port: u16, program: PathBuf) -> Component {
    let arguments = vec![
        "internal-gateway".to_owned(),
        flag("port", port),
        file("netns", layout.netns_file()),
        flag("target", Layout::api_server()),
    ];
    Component {
        name: "gateway".to_owned(),
        program,
        arguments,
        inside: false,
    }
}

fn volumes_component(layout: &Layout, program: PathBuf) -> Component {
    let arguments = vec![
        "internal-volumes".to_owned(),
        file("kubeconfig", layout.pki("volumes.kubeconfig")),
        file("state", &layout.state),
    ];
    Component::inside("volumes", program, arguments)
}

/// DNS, the storage class and what they may do.
fn apply(layout: &Layout, programs: &Programs) -> Result<()> {
    let mut kubectl = Command::new(programs.file(&Program::Kubectl)?)
        .arg("--kubeconfig")
        .arg(layout.kubeconfig())
        .args([
            "apply",
            "--server-side",
            "--force-conflicts",
            "--validate=ignore",
            "--filename",
            "-",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start kubectl")?;
    kubectl
        .stdin
        .take()
        .context("kubectl's input")?
        .write_all(MANIFESTS.join("---\n").as_bytes())?;
    let done = kubectl.wait_with_output()?;
    if !done.status.success() {
        bail!(
            "cannot apply DNS and the storage class:\n{}",
            String::from_utf8_lossy(&done.stderr)
        );
    }
    Ok(())
}
