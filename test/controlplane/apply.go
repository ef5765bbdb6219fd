package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// Documents are the objects of a YAML text.
func Documents(content []byte) (all []*unstructured.Unstructured, err error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		json, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			return nil, err
		}
		if string(json) == "null" {
			continue // nothing but a comment
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(json); err != nil {
			return nil, err
		}
		all = append(all, object)
	}
}

// Apply creates the objects of a YAML text, as kubectl create does; those without a namespace get the one given.
func (c *ControlPlane) Apply(ctx context.Context, content []byte, namespace string) error {
	objects, err := Documents(content)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := c.CreateObject(ctx, object, namespace); err != nil {
			return err
		}
	}
	return nil
}

// CreateObject creates one object, in its own namespace or else in the one given. When it returns, the subjects of a
// binding have the rights of its role, if that was there before.
func (c *ControlPlane) CreateObject(ctx context.Context, object *unstructured.Unstructured, namespace string) error {
	resource, err := c.Resource(object, namespace)
	var created *unstructured.Unstructured
	if err == nil {
		created, err = resource.Create(ctx, object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	}
	if err == nil {
		err = c.noticed(ctx, created)
	}
	if err != nil {
		return fmt.Errorf("create %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// Resource is where objects like this one are reached, in their own namespace or else in the one given.
func (c *ControlPlane) Resource(object *unstructured.Unstructured,
	namespace string,
) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) { // it may be new
		c.mapper.Reset()
		mapping, err = c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return nil, err
	}
	resource := c.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return resource, nil
	}
	if object.GetNamespace() != "" {
		namespace = object.GetNamespace()
	}
	return resource.Namespace(namespace), nil
}

// AwaitServed waits until the API server serves a kind that was defined just now.
func (c *ControlPlane) AwaitServed(ctx context.Context, kind schema.GroupVersionKind) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return Await(ctx, kind.Kind+" is served", func(ctx context.Context) error {
		resource, err := c.Resource(object, metav1.NamespaceDefault)
		if err == nil {
			_, err = resource.List(ctx, metav1.ListOptions{})
		}
		return err
	})
}
