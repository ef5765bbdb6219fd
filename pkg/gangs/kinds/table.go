package kinds

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What a pod's author has written is kept up to these lengths, in bytes, as pkg/kube/cluster does with all of a pod.
const (
	maxName  = 253 // of objects, as the API server bounds them
	maxShown = 64  // of what is no number
)

// Key names a gang.
type Key struct{ Kind, Namespace, Name string }

// String is how a gang is named to people.
func (k Key) String() string { return k.Kind + " gang " + k.Namespace + "/" + k.Name }

// Mark is what a pod says of the gang it is a member of.
type Mark struct {
	Kind, Name string
	// Minimum is how many members the pod says the gang needs, at least 1; 0 where it does not say, so that the kind's
	// object does; -1 where what it says is wrong.
	Minimum int64
	// Err says what is wrong with what the pod says, and what to do.
	Err string
	// Task is which of the gang's tasks the pod is one of, and Owner the UID of what controls it. They say nothing of the
	// gang.
	Task  string
	Owner types.UID
}

// Word is the mark without what is of the pod alone.
func (m Mark) Word() Mark {
	m.Task, m.Owner = "", ""
	return m
}

// Key names the gang that a pod of a namespace with the mark is a member of.
func (m *Mark) Key(namespace string) Key {
	return Key{Kind: m.Kind, Namespace: namespace, Name: m.Name}
}

// Table is the kinds in use, ready to be looked up. Nil is a table of none. It is safe for concurrent use.
type Table struct {
	list  []Kind
	kinds []*Compiled
}

// Compiled is one kind in use.
type Compiled struct {
	Kind
	ways    []way
	minimum *objectPath // nil without an object
	tasks   *objectPath // nil without a path
}

type way struct{ name, minimum, task podPath }

// New makes a table of the kinds of a policy (see Merge) that are not switched off.
func New(list []Kind) (*Table, error) {
	if err := Validate(list, field.NewPath("gangs", "kinds")).ToAggregate(); err != nil {
		return nil, err
	}
	t := &Table{list: slices.Clone(list)}
	for i := range list {
		if !list[i].Disabled {
			t.kinds = append(t.kinds, compile(list[i]))
		}
	}
	return t, nil
}

// compile makes a kind that is valid ready for use.
func compile(k Kind) *Compiled {
	c := &Compiled{Kind: k}
	for _, w := range k.Pods {
		name, _ := parsePodPath(w.Name)
		minimum, _ := parsePodPath(w.Minimum) // without one it is nowhere
		task, _ := parsePodPath(w.Task)
		c.ways = append(c.ways, way{name, minimum, task})
	}
	if k.Object != nil {
		c.minimum, _ = parseObjectPath(k.Object.Minimum)
		c.tasks, _ = parseObjectPath(k.Object.Tasks)
	}
	return c
}

// List is what the table was made of.
func (t *Table) List() []Kind { return t.list }

// Kinds are the kinds in use, in order.
func (t *Table) Kinds() []*Compiled {
	if t == nil {
		return nil
	}
	return t.kinds
}

// Mark returns what a pod says of its gang; nil, as for nearly all pods, where it names none.
func (t *Table) Mark(pod *v1.Pod) *Mark {
	if t == nil || (len(pod.Annotations) == 0 && len(pod.Labels) == 0 && pod.Spec.SchedulingGroup == nil) {
		return nil
	}
	for _, k := range t.kinds {
		for i := range k.ways {
			if name := k.ways[i].name.in(pod); name != "" {
				return k.mark(&k.ways[i], name, pod)
			}
		}
	}
	return nil
}

// mark is what a pod says of a gang that it names in some way.
func (c *Compiled) mark(w *way, name string, pod *v1.Pod) *Mark {
	shown := printable(name)
	m := &Mark{Kind: c.Name, Name: Clip(shown, maxName), Task: Clip(w.task.in(pod), maxName)}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		m.Owner = types.UID(Clip(string(owner.UID), maxName))
	}
	if text := w.minimum.in(pod); text != "" {
		number, problem := numberOf(w.minimum.text, text)
		if m.Minimum = max(number, 1); problem != "" {
			m.Minimum, m.Err = -1, problem+" on the pod"
		}
	} else if c.Object == nil {
		m.Minimum, m.Err = -1, fmt.Sprintf("the pod names gang %s and no minimum; say how many members the gang needs at %s",
			m.Name, w.minimum.text)
	}
	switch {
	case len(name) > maxName:
		m.Err = fmt.Sprintf("%s is longer than %d bytes, so it names no gang; correct it on the pod", w.name.text, maxName)
	case shown != name:
		m.Err = w.name.text + " has characters that cannot be printed, so it names no gang; correct it on the pod"
	case strings.Contains(name, "/"):
		m.Err = fmt.Sprintf("%s is %s, and gangs never cross namespaces; give the name alone, of a gang in the pod's own "+
			"namespace", w.name.text, m.Name)
	}
	return m
}

// Minimum returns how many members a gang needs by its object; 0 means that its pods are useful each alone. A problem
// says what is wrong with the object.
func (c *Compiled) Minimum(object map[string]any) (minimum int64, problem string) {
	return c.minimum.number(object)
}

// Tasks returns how many of the members that a gang needs, by its object, have to be of each task; nil where that does
// not matter. A problem says what is wrong with the object.
func (c *Compiled) Tasks(object map[string]any, minimum int64) (tasks map[string]int, problem string) {
	if c.tasks == nil {
		return nil, ""
	}
	tasks, sum, problem := c.tasks.numbers(object)
	if sum > minimum {
		return nil, problem
	}
	return tasks, problem
}

// printable is a name as it can be shown, and asked for as a page of a list.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, name)
}

// Clip bounds a text. Of a longer one it keeps one byte more than most, which equals no text within the bound.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.Clone(text[:most+1])
}
