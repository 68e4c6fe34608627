//! The way in from the host: a process that listens on the host's loopback and connects from inside the cluster's network.
//!
//! A socket stays in the namespace where it was made. So the listener is made first, then the thread moves, then connections are
//! made there: no interface joins the two networks, and there is nothing to clean up but the process. It passes bytes; TLS is
//! between the client and the API server.

use std::{
    fs::File,
    net::{Ipv4Addr, SocketAddrV4, TcpListener},
    path::PathBuf,
};

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, setns};
use tokio::{io, net::TcpStream};

/// Lets programs on the host reach the API server.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The port of the host's loopback to listen on.
    #[arg(long)]
    port: u16,
    /// The network namespace to connect from.
    #[arg(long)]
    netns: PathBuf,
    /// Where connections lead.
    #[arg(long)]
    target: SocketAddrV4,
}

pub fn run(args: &Args) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port))
        .with_context(|| format!("cannot listen on 127.0.0.1:{}", args.port))?;
    listener.set_nonblocking(true)?;
    let namespace =
        File::open(&args.netns).with_context(|| format!("cannot open {}", args.netns.display()))?;
    setns(namespace, CloneFlags::CLONE_NEWNET).context("cannot enter the network namespace")?;
    // One thread: it is the thread that is in the namespace, not the process.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(serve(listener, args.target))
}

async fn serve(listener: TcpListener, target: SocketAddrV4) -> Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let Ok((mut client, _)) = listener.accept().await else {
            // Out of file descriptors, most likely: those that are open will end.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            continue;
        };
        tokio::spawn(async move {
            if let Ok(mut server) = TcpStream::connect(target).await {
                let _ = client.set_nodelay(true);
                let _ = server.set_nodelay(true);
                let _ = io::copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}

/// A port that is free now.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}
