module local

go 1.21

require go.etcd.io/etcd v0.5.0-alpha.5.0.20240320135013-950cd5fbe6ca
