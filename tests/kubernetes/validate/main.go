// Decodes manifests from standard input strictly, by the types of the API server: an unknown field, a field twice or a value of
// the wrong type is a fault. Prints what each object is.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{core.AddToScheme, apps.AddToScheme, monitoring.AddToScheme} {
		if err := add(scheme); err != nil {
			fail(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(os.Stdin))
	for {
		document, err := documents.Read()
		if err == io.EOF {
			return
		}
		if err != nil {
			fail(err)
		}
		object, kind, err := decoder.Decode(document, nil, nil)
		if runtime.IsMissingKind(err) && len(document) < 100 {
			continue // a comment before the first document
		}
		if err != nil {
			fail(fmt.Errorf("%w\n%s", err, document))
		}
		_ = object
		fmt.Println(kind.Kind)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
