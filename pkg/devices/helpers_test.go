package devices

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

const gpu = "nvidia.com/gpu"

// requestOf compiles a claim's spec in YAML; the resource is a GPU unless it says otherwise.
func requestOf(t testing.TB, text string) *Request {
	t.Helper()
	spec := specOf(t, text)
	request, err := Compile(field.NewPath("spec"), &spec)
	require.NoError(t, err)
	return request
}

func specOf(t testing.TB, text string) v1alpha1.ExtendedResourceClaimSpec {
	t.Helper()
	spec := v1alpha1.ExtendedResourceClaimSpec{ResourceName: gpu, Count: 1}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), &spec))
	return spec
}

// gpuOf returns a device whose ID is its name in capitals, more or less.
func gpuOf(name string, keysAndValues ...string) Device {
	d := Device{Name: name, Resource: gpu, ID: "GPU-" + name, Properties: map[string]string{}}
	for i := 0; i < len(keysAndValues); i += 2 {
		d.Properties[keysAndValues[i]] = keysAndValues[i+1]
	}
	return d
}

// freeOf returns the schedulable devices of a pool, less those that are named.
func freeOf(t testing.TB, p *Pool, taken ...string) Set {
	t.Helper()
	free := p.Schedulable()
	for _, name := range taken {
		i, ok := p.index[name]
		require.True(t, ok, name)
		free.Remove(i)
	}
	return free
}

// namesOf writes a choice with the names of devices.
func namesOf(p *Pool, choice [][]int) [][]string {
	names := [][]string{}
	for _, chosen := range choice {
		of := []string{}
		for _, i := range chosen {
			of = append(of, p.Device(i).Name)
		}
		names = append(names, of)
	}
	return names
}

// bigNode has the devices of a large node: of several models and sizes, in no order.
func bigNode(devices int) *Pool {
	models := []string{"K80", "T4", "V100", "A100"}
	sizes := []string{"12Gi", "16Gi", "32Gi", "80Gi"}
	var all []Device
	for i := range devices {
		d := gpuOf(fmt.Sprintf("gpu-%03d", i*37%devices), "model", models[i%4], "memory", sizes[i/4%4])
		if i%3 == 0 {
			d.Properties["nvlink"] = "yes"
		}
		all = append(all, d)
	}
	return NewPool(all)
}

// contended is eight claims on a node of 64 devices, of which one device in eight is left over and
// which compete for the same models and sizes.
func contended(b testing.TB) []*Request {
	return []*Request{
		requestOf(b, `count: 7`),
		requestOf(b, `{count: 7, selector: {matchProperties: {model: K80}}}`),
		requestOf(b, `{count: 7, selector: {matchExpressions: [{key: memory, operator: Gt, values: [12Gi]}]}}`),
		requestOf(b, `{count: 7, selector: {matchExpressions: [{key: model, operator: In, values: [K80, T4]}]}}`),
		requestOf(b, `{count: 7, selector: {matchExpressions: [{key: nvlink, operator: Exists}]}}`),
		requestOf(b, `{count: 7, selector: {matchExpressions: [{key: memory, operator: Lt, values: [32Gi]}]}}`),
		requestOf(b, `{count: 7, selector: {matchProperties: {model: A100}}}`),
		requestOf(b, `{count: 7, selector: {matchExpressions: [{key: model, operator: NotIn, values: [A100]}]}}`),
	}
}
