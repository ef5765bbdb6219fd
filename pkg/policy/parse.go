package policy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kubejson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/gangs/kinds"
)

// maxFileSize bounds the policy file, in bytes. It is the size limit of a ConfigMap.
const maxFileSize = 1 << 20

// Load reads and parses the file at path. Errors name the path.
func Load(path string) (*Policy, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	p, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("policy file %s: %w", path, err)
	}
	return p, nil
}

// readFile reads the file, which may have maxFileSize bytes. Its errors name the path.
func readFile(path string) ([]byte, error) {
	data, err := os.ReadFile(path) //nolint:gosec // who starts the program names the file
	if errors.Is(err, fs.ErrNotExist) {
		// The kubelet removes what its symlink led to after it leads elsewhere.
		data, err = os.ReadFile(path) //nolint:gosec // as above
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("policy file: %w", err)
	case len(data) > maxFileSize:
		return nil, fmt.Errorf("policy file %s is larger than %d bytes", path, maxFileSize)
	}
	return data, nil
}

// Parse reads a policy file in YAML or JSON, fills in the defaults and validates the result. The
// error is a k8s.io/apimachinery Aggregate with one entry per mistake.
func Parse(data []byte) (*Policy, error) {
	raw, err := toJSON(data)
	if err != nil {
		return nil, utilerrors.NewAggregate([]error{err})
	}
	var head metav1.TypeMeta
	if err := kubejson.UnmarshalCaseSensitivePreserveInts(raw, &head); err != nil {
		return nil, utilerrors.NewAggregate([]error{fmt.Errorf("the file cannot be decoded: %w", err)})
	}
	if head.Kind == "ConfigMap" {
		return nil,
			utilerrors.NewAggregate([]error{errors.New("this is a ConfigMap: give the policy itself, which is the value of " +
				"its key policy.yaml")})
	}
	// Of another version all fields may be different, so nothing more is said about them.
	if errs := validateHead(head); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	p := Default()
	p.Prioritize.Resources, p.Gangs.Kinds = nil, nil // a list that is given replaces the default, or goes before it
	strict, err := kubejson.UnmarshalStrict(raw, p)
	if err != nil {
		return nil, utilerrors.NewAggregate([]error{fmt.Errorf("the file cannot be decoded: %w", err)})
	}
	p.setListDefaults()
	var errs []error
	for _, e := range strict {
		errs = append(errs, fmt.Errorf("%w: correct its name or remove it", e))
	}
	for _, e := range p.validate() {
		errs = append(errs, e)
	}
	if len(errs) > 0 {
		return nil, utilerrors.NewAggregate(errs)
	}
	return p, nil
}

// toJSON turns the one YAML document in data that is not empty into JSON.
func toJSON(data []byte) ([]byte, error) {
	var found []byte
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		var raw []byte
		if err == nil {
			raw, err = yaml.YAMLToJSONStrict(document)
		}
		switch {
		case err != nil: // may be of several lines
			return nil, fmt.Errorf("the file is not valid YAML: %s", strings.Join(strings.Fields(err.Error()), " "))
		case string(raw) == "null":
		case found != nil:
			return nil, errors.New("the file holds several YAML documents: keep one policy, without \"---\" after it")
		default:
			found = raw
		}
	}
	if found == nil {
		return nil, fmt.Errorf("the file is empty: it must hold at least apiVersion: %s and kind: %s", apiVersion, policyKind)
	}
	return found, nil
}

// validateHead makes sure that the file is one this version of GlobalReserve can read.
func validateHead(head metav1.TypeMeta) (errs field.ErrorList) {
	for _, f := range []struct{ name, want, got string }{
		{"apiVersion", apiVersion, head.APIVersion},
		{"kind", policyKind, head.Kind},
	} {
		switch f.got {
		case f.want:
		case "":
			errs = append(errs, field.Required(field.NewPath(f.name), fmt.Sprintf("must be %q", f.want)))
		default:
			errs = append(errs, field.NotSupported(field.NewPath(f.name), f.got, []string{f.want}))
		}
	}
	return errs
}

// setListDefaults fills in what the lists of the file leave out.
func (p *Policy) setListDefaults() {
	if p.Prioritize.Resources == nil {
		p.Prioritize.Resources = defaultResources()
	}
	setWeights(p.Prioritize.Resources)
	p.Gangs.Kinds = kinds.Merge(p.Gangs.Kinds)
	for i := range p.Schedulers {
		if own := p.Schedulers[i].Prioritize; own != nil {
			setWeights(own.Resources)
		}
	}
}

func setWeights(list []ResourceWeight) {
	for i := range list {
		if list[i].Weight == 0 {
			list[i].Weight = 1
		}
	}
}

// defaultResources are what the use of a node is judged by where the file does not say.
func defaultResources() []ResourceWeight {
	return []ResourceWeight{{Name: corev1.ResourceCPU, Weight: 1}, {Name: corev1.ResourceMemory, Weight: 1}}
}
