module local

go 1.16

require (
	github.com/coreos/etcd v3.1.10+incompatible
	github.com/karlseguin/ccache v2.0.3+incompatible
	github.com/beorn7/perks v1.0.0
	github.com/bgentry/speakeasy v0.1.0
	github.com/cockroachdb/cmux v0.0.0-20170110192607-30d10be49292
	github.com/boltdb/bolt v1.3.1
	github.com/coreos/go-semver v0.2.0
	github.com/coreos/go-systemd v0.0.0-20180511133405-39ca1b05acc7
	github.com/coreos/pkg v0.0.0-20160727233714-3ac0863d7acf
	github.com/dustin/go-humanize v0.0.0-20171111073723-bb3d318650d4
	github.com/ghodss/yaml v1.0.0
	github.com/gogo/protobuf v1.0.0
	github.com/golang/protobuf v1.3.5
	github.com/google/btree v1.0.0
	github.com/grpc-ecosystem/go-grpc-prometheus v0.0.0-20160910222444-6b7015e65d36
	github.com/grpc-ecosystem/grpc-gateway v1.1.0
	github.com/inconshreveable/mousetrap v1.0.0
	github.com/jonboulle/clockwork v0.1.0
	github.com/mattn/go-runewidth v0.0.2
	github.com/matttproud/golang_protobuf_extensions v1.0.1
	github.com/olekukonko/tablewriter v0.0.0-20170122224234-a0225b3f23b5
	github.com/prometheus/client_golang v0.8.0
	github.com/prometheus/client_model v0.0.0-20180712105110-5c3871d89910
	github.com/prometheus/common v0.0.0-20180110214958-89604d197083
	github.com/prometheus/procfs v0.0.0-20180125133057-cb4147076ac7
	github.com/spf13/cobra v0.0.3
	github.com/spf13/pflag v1.0.1
	github.com/ugorji/go v0.0.0-20170107133203-ded73eae5db7
	github.com/urfave/cli v1.20.0
	github.com/xiang90/probing v0.0.0-20190116061207-43a291ad63a2
	golang.org/x/crypto v0.0.0-20200323165209-0ec3e9974c59
	golang.org/x/net v0.0.0-20200202094626-16171245cfb2
	golang.org/x/sys v0.0.0-20200323222414-85ca7c5b95cd
	golang.org/x/text v0.3.2
	golang.org/x/time v0.0.0-20180412165947-fbb02b2291d2
	google.golang.org/genproto v0.0.0-20180817151627-c66870c02cf8
	google.golang.org/grpc v1.0.4
	gopkg.in/cheggaaa/pb.v1 v1.0.25
	gopkg.in/yaml.v2 v2.4.0
)
replace github.com/ugorji/go => ./ugorji
