package kinds

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/jsonpath"
)

// schedulingGroup is the path of Kubernetes' own gangs.
const schedulingGroup = ".spec.schedulingGroup.podGroupName"

// podPath is a path on a pod, ready to be followed.
type podPath struct {
	text string
	of   place
	key  string // of annotations and labels
}

type place uint8

const (
	nowhere place = iota
	inAnnotations
	inLabels
	inGroup
)

var mapPath = regexp.MustCompile(`^\.metadata\.(annotations|labels)\['([^']+)'\]$`)

func parsePodPath(text string) (podPath, error) {
	bare := unbraced(text)
	if bare == schedulingGroup {
		return podPath{text: bare, of: inGroup}, nil
	}
	found := mapPath.FindStringSubmatch(bare)
	if found == nil {
		return podPath{}, errors.New("must be .metadata.annotations['key'], .metadata.labels['key'] or " + schedulingGroup +
			": pods are read along no other paths")
	}
	if problems := validation.IsQualifiedName(found[2]); len(problems) > 0 {
		return podPath{}, fmt.Errorf("%q cannot be the key of an annotation or label: %s", found[2],
			strings.Join(problems, "; "))
	}
	p := podPath{text: bare, of: inAnnotations, key: found[2]}
	if found[1] == "labels" {
		p.of = inLabels
	}
	return p, nil
}

// in returns what a pod has there, "" where it has nothing.
func (p *podPath) in(pod *v1.Pod) string {
	switch p.of {
	case inAnnotations:
		return pod.Annotations[p.key]
	case inLabels:
		return pod.Labels[p.key]
	case inGroup:
		if g := pod.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
			return *g.PodGroupName
		}
	case nowhere:
	}
	return ""
}

// objectPath is a path on an object. It is safe for concurrent use.
type objectPath struct {
	text string
	mu   sync.Mutex // guards what follows: following a path changes it
	path *jsonpath.JSONPath
}

func parseObjectPath(text string) (*objectPath, error) {
	bare := unbraced(text)
	if !strings.HasPrefix(bare, ".") || strings.ContainsAny(bare, "{}") {
		return nil, errors.New("it begins with a dot and has no braces inside")
	}
	path := jsonpath.New("minimum").AllowMissingKeys(true)
	if err := path.Parse("{" + bare + "}"); err != nil {
		return nil, err
	}
	return &objectPath{text: bare, path: path}, nil
}

// number returns the number that an object has there, 0 where it has nothing. A problem says what is wrong.
func (p *objectPath) number(object map[string]any) (number int64, problem string) {
	value, problem := p.value(object)
	if problem != "" {
		return 0, problem
	}
	return numberOf(p.text, value)
}

// maxTasks is how many tasks a gang may have that have a minimum.
const maxTasks = 256

// numbers returns the numbers above 0 of the map that an object has there, and what they come to. It is nil where the
// object has none.
func (p *objectPath) numbers(object map[string]any) (numbers map[string]int, sum int64, problem string) {
	value, problem := p.value(object)
	list, ok := value.(map[string]any)
	switch {
	case problem != "" || value == nil:
		return nil, 0, problem
	case !ok || len(list) > maxTasks:
		return nil, 0, fmt.Sprintf("%s is no map of at most %d numbers; correct it", p.text, maxTasks)
	}
	for task, value := range list {
		number, problem := numberOf(p.text+"."+Clip(task, maxShown), value)
		if problem != "" {
			return nil, 0, problem
		}
		if number == 0 {
			continue
		}
		if numbers == nil {
			numbers = map[string]int{}
		}
		numbers[Clip(task, maxName)] = int(number)
		sum += number
	}
	return numbers, sum, ""
}

// value returns what an object has there, nil where it has nothing.
func (p *objectPath) value(object map[string]any) (value any, problem string) {
	p.mu.Lock()
	found, err := p.path.FindResults(object)
	p.mu.Unlock()
	if err != nil {
		return nil, fmt.Sprintf("%s cannot be read: %v", p.text, err)
	}
	var values []reflect.Value
	for _, some := range found {
		values = append(values, some...)
	}
	switch {
	case len(values) == 0:
		return nil, ""
	case len(values) > 1:
		return nil, fmt.Sprintf("%s is %d values; name one", p.text, len(values))
	case !values[0].IsValid() || !values[0].CanInterface():
		return nil, ""
	}
	return values[0].Interface(), ""
}

// numberOf reads a minimum.
func numberOf(where string, value any) (number int64, problem string) {
	switch v := value.(type) {
	case nil:
		return 0, ""
	case int64:
		number = v
	case float64:
		number = int64(v)
		if v != math.Trunc(v) || math.Abs(v) > math.MaxInt32 {
			return 0, fmt.Sprintf("%s is %v, which is no whole number that can be counted to; correct it", where, v)
		}
	case string:
		var err error
		if number, err = strconv.ParseInt(v, 10, 64); err != nil {
			return 0, fmt.Sprintf("%s is %q, which is no whole number; correct it", where, Clip(v, maxShown))
		}
	default:
		return 0, fmt.Sprintf("%s is no number; correct it", where)
	}
	switch {
	case number < 0:
		return 0, fmt.Sprintf("%s is %d; say how many members the gang needs", where, number)
	case number > math.MaxInt32:
		return 0, fmt.Sprintf("%s is %d, which is more than can be counted; correct it", where, number)
	}
	return number, ""
}

// unbraced is a path without the braces that kubectl wants around it.
func unbraced(text string) string {
	if inner, ok := strings.CutPrefix(text, "{"); ok {
		if inner, ok = strings.CutSuffix(inner, "}"); ok {
			return inner
		}
	}
	return text
}
