package crd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/test/controlplane"
)

const (
	// installTimeout is how long the API server may take to serve a new definition.
	installTimeout = 30 * time.Second
	pollInterval   = 20 * time.Millisecond
)

var definitions = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// kinds are the plural names of the kinds that manifests/crd defines.
var kinds = []string{"reservations", "extendedresources", "extendedresourceclaims"}

// manifest reads the definition of one kind from manifests/crd.
func manifest(kind string) (*unstructured.Unstructured, error) {
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(root, "manifests", "crd", "globalreserve.io_"+kind+".yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(content, definition); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return definition, nil
}

// Prepare is Install as controlplane.Shared wants it.
func Prepare(ctx context.Context, cp *controlplane.ControlPlane) error {
	config, err := cp.AdminRESTConfig()
	if err != nil {
		return err
	}
	return Install(ctx, config)
}

// Install creates the definitions of all kinds and waits until the API server has established them.
func Install(ctx context.Context, config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	resource := client.Resource(definitions)
	var names []string
	for _, kind := range kinds {
		definition, err := manifest(kind)
		if err != nil {
			return err
		}
		names = append(names, definition.GetName())
		_, err = resource.Create(ctx, definition, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if err != nil {
			return fmt.Errorf("create the definition %s: %w", definition.GetName(), err)
		}
	}
	for _, name := range names {
		err := wait.PollUntilContextTimeout(ctx, pollInterval, installTimeout, true, func(ctx context.Context) (bool, error) {
			current, err := resource.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			return hasCondition(current, "Established"), nil
		})
		if err != nil {
			return fmt.Errorf("wait for the definition %s to be established: %w", name, err)
		}
	}
	return nil
}

func hasCondition(definition *unstructured.Unstructured, conditionType string) bool {
	conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
	for _, entry := range conditions {
		condition, ok := entry.(map[string]any)
		if ok && condition["type"] == conditionType && condition["status"] == "True" {
			return true
		}
	}
	return false
}
