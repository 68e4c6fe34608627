//! The certificates of a local cluster: one authority, a leaf for each component, kubeconfigs that hold theirs inline.
//!
//! Writes below the cluster's `pki` folder, and the kubeconfigs. Keys live as long as the cluster does.

use std::{fs, net::IpAddr, os::unix::fs::OpenOptionsExt, path::Path};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::json;

use super::layout::{API_SERVER, API_SERVICE, Layout, Node};

/// Who a certificate speaks for: user and group, as Kubernetes reads them.
struct Identity<'a> {
    user: &'a str,
    group: Option<&'a str>,
}

pub fn write(layout: &Layout, nodes: &[Node], host_port: u16) -> Result<()> {
    fs::create_dir_all(layout.pki(""))?;
    let (authority, authority_pem) = authority()?;
    save(&layout.pki("ca.crt"), &authority_pem)?;
    save(&layout.pki("ca.key"), &authority.key().serialize_pem())?;
    let accounts = KeyPair::generate()?;
    save(&layout.pki("sa.key"), &accounts.serialize_pem())?;
    save(&layout.pki("sa.pub"), &accounts.public_key_pem())?;

    let leaf =
        |file: &str, identity: &Identity, names: &[&str], addresses: &[IpAddr]| -> Result<Leaf> {
            let leaf = leaf(&authority, identity, names, addresses)
                .with_context(|| format!("certificate of {file}"))?;
            save(&layout.pki(&format!("{file}.crt")), &leaf.certificate)?;
            save(&layout.pki(&format!("{file}.key")), &leaf.key)?;
            Ok(leaf)
        };
    let names = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
    ];
    let loopback = IpAddr::from([127, 0, 0, 1]);
    leaf(
        "apiserver",
        &user("kube-apiserver"),
        &names,
        &[loopback, API_SERVER.into(), API_SERVICE.into()],
    )?;
    leaf(
        "apiserver-kubelet",
        &Identity {
            user: "apiserver-kubelet",
            group: Some("system:masters"),
        },
        &[],
        &[],
    )?;

    // With these the API server passes requests on to extension API servers, such as one for metrics.
    leaf("front-proxy", &user("front-proxy"), &[], &[])?;

    // The API server shows this one to webhooks that ask who calls.
    leaf("webhook-caller", &user("kube-apiserver"), &[], &[])?;

    let inside = format!("https://{}", Layout::api_server());
    let context = format!("etcd-operator-{}", layout.name);
    let kubeconfig = |path: &Path, server: &str, leaf: &Leaf| {
        save(path, &kubeconfig(&context, server, &authority_pem, leaf)?)
    };
    let admin = leaf(
        "admin",
        &Identity {
            user: "admin",
            group: Some("system:masters"),
        },
        &[],
        &[],
    )?;
    kubeconfig(
        &layout.kubeconfig(),
        &format!("https://127.0.0.1:{host_port}"),
        &admin,
    )?;
    kubeconfig(&layout.kubeconfig_inside(), &inside, &admin)?;
    for (component, name) in [
        ("controller-manager", "system:kube-controller-manager"),
        ("scheduler", "system:kube-scheduler"),
        ("proxy", "system:kube-proxy"),
        ("volumes", super::volumes::USER),
    ] {
        kubeconfig(
            &layout.pki(&format!("{component}.kubeconfig")),
            &inside,
            &leaf(component, &user(name), &[], &[])?,
        )?;
    }
    for node in nodes {
        let name = format!("system:node:{}", node.name);
        let identity = Identity {
            user: &name,
            group: Some("system:nodes"),
        };
        let leaf = leaf(
            &node.name,
            &identity,
            &[&node.name],
            &[node.address().into()],
        )?;
        kubeconfig(
            &layout.pki(&format!("{}.kubeconfig", node.name)),
            &inside,
            &leaf,
        )?;
    }
    Ok(())
}

struct Leaf {
    certificate: String,
    key: String,
}

fn user(user: &str) -> Identity<'_> {
    Identity { user, group: None }
}

fn authority() -> Result<(Issuer<'static, KeyPair>, String)> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "etcd-operator local cluster");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    let key = KeyPair::generate()?;
    let pem = params.self_signed(&key)?.pem();
    Ok((Issuer::new(params, key), pem))
}

fn leaf(
    authority: &Issuer<'_, KeyPair>,
    identity: &Identity,
    names: &[&str],
    addresses: &[IpAddr],
) -> Result<Leaf> {
    let mut params = CertificateParams::new(
        names
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>(),
    )?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, identity.user);
    if let Some(group) = identity.group {
        params
            .distinguished_name
            .push(DnType::OrganizationName, group);
    }
    params
        .subject_alt_names
        .extend(addresses.iter().copied().map(SanType::IpAddress));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let key = KeyPair::generate()?;
    Ok(Leaf {
        certificate: params.signed_by(&key, authority)?.pem(),
        key: key.serialize_pem(),
    })
}

fn kubeconfig(context: &str, server: &str, authority: &str, leaf: &Leaf) -> Result<String> {
    let encoded =
        |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    Ok(serde_yaml_ng::to_string(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "clusters": [{"name": context, "cluster": {"server": server, "certificate-authority-data": encoded(authority)}}],
        "users": [{"name": context, "user": {"client-certificate-data": encoded(&leaf.certificate), "client-key-data": encoded(&leaf.key)}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
    }))?)
}

/// Readable by its owner only: most of these are keys, and one rule is easier to keep.
fn save(path: &Path, text: &str) -> Result<()> {
    let mut file = fs::File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(std::io::Write::write_all(&mut file, text.as_bytes())?)
}
