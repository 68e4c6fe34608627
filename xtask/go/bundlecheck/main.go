// Judges an OLM bundle with the operator-framework's own validators and says what they find. A warning is a failure too, unless it is known
// and answered below: the bundle is generated, and nobody reads warnings.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	"github.com/operator-framework/api/pkg/validation/errors"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
)

// All that look at the bundle alone. The one for architectures asks Docker for the image.
var validators = interfaces.Validators{
	validation.ClusterServiceVersionValidator,
	validation.CustomResourceDefinitionValidator,
	validation.BundleValidator,
	validation.OperatorHubV2Validator,
	validation.StandardCategoriesValidator,
	validation.StandardCapabilitiesValidator,
	validation.ObjectValidator,
	validation.OperatorGroupValidator,
	validation.AlphaDeprecatedAPIsValidator,
	validation.GoodPracticesValidator,
}

var answered = []string{
	// Checked at admission, and not run by this release: nobody should be shown how to make one.
	"Kind=EtcdBackup: provided API should have an example annotation",
	"Kind=EtcdRestore: provided API should have an example annotation",
	// A rule about events names no version; ours are of events.k8s.io/v1.
	"Migrate the API(s) for events:",
}

func known(finding errors.Error) bool {
	for _, words := range answered {
		if finding.Level == errors.LevelWarn && strings.Contains(finding.Error(), words) {
			return true
		}
	}
	return false
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: bundle-check FOLDER")
		os.Exit(2)
	}
	bundle, err := manifests.GetBundleFromDir(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// A bundle without its parts would pass most of the validators.
	if bundle.CSV == nil || len(bundle.V1CRDs) == 0 || len(bundle.Channels) == 0 {
		fmt.Fprintln(os.Stderr, "the bundle lacks its ClusterServiceVersion, its CRDs or its annotations")
		os.Exit(1)
	}
	found := 0
	for _, result := range validators.Validate(bundle.ObjectsToValidate()...) {
		for _, finding := range append(result.Errors, result.Warnings...) {
			if known(finding) {
				continue
			}
			fmt.Fprintf(os.Stderr, "%s: %s\n", result.Name, finding.Error())
			found++
		}
	}
	if found > 0 {
		os.Exit(1)
	}
	fmt.Printf("%s in channels %v: %d definitions\n", bundle.CSV.Name, bundle.Channels, len(bundle.V1CRDs))
}
