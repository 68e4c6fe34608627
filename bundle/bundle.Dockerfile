# Made from the chart by `cargo xtask bundle`. Do not edit.
FROM scratch
LABEL operators.operatorframework.io.bundle.channel.default.v1="candidate-clusterwide"
LABEL operators.operatorframework.io.bundle.channels.v1="candidate-clusterwide"
LABEL operators.operatorframework.io.bundle.manifests.v1="manifests/"
LABEL operators.operatorframework.io.bundle.mediatype.v1="registry+v1"
LABEL operators.operatorframework.io.bundle.metadata.v1="metadata/"
LABEL operators.operatorframework.io.bundle.package.v1="etcd"
LABEL operators.operatorframework.io.test.config.v1="tests/scorecard/"
LABEL operators.operatorframework.io.test.mediatype.v1="scorecard+v1"
COPY manifests /manifests/
COPY metadata /metadata/
COPY tests/scorecard /tests/scorecard/
