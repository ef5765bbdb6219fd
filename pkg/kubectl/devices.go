package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/globalreserve/globalreserve/pkg/apis/globalreserve/v1alpha1"
)

type devicesOptions struct {
	command
	node, resource string
	free           bool
}

func newDevicesCommand(env *environment) *cobra.Command {
	o := &devicesOptions{command: command{environment: env}}
	cmd := &cobra.Command{
		Use:     "devices [NAME...]",
		Aliases: []string{"device"},
		Short:   "Show the devices of the nodes, and which claims and pods have them",
		Long: `Show the ExtendedResource objects of the cluster: on which node each device is, what containers call it (ID),
and which claim and pod have it. DRA devices are shown, too: their resource is the driver, the name driver/pool/device,
and the claims are ResourceClaims. One of which more is allocated than there is has the status Double.

Claims are shown as namespace/name; the pod is of the same namespace. -o wide adds the properties that claims select
by, which template a claim was made from, and why a device is offline.`,
		Example: `  kubectl reserve devices

  # Which GPUs are free?
  kubectl reserve devices --resource nvidia.com/gpu --free

  # The devices of one node, with their properties
  kubectl reserve devices --node node-7 -o wide`,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
		ValidArgsFunction: env.completeArgs(anyNumber, listDevices),
	}
	cmd.Flags().StringVar(&o.node, "node", "", "only devices of this node")
	cmd.Flags().StringVar(&o.resource, "resource", "", "only devices of this resource, such as nvidia.com/gpu")
	cmd.Flags().BoolVar(&o.free, "free", false, "only devices that a claim could be given now")
	completeBy(cmd, "node", env.completeNames(listNodes))
	o.addOutput(cmd, outputTable, outputWide, outputYAML, outputJSON, outputName)
	return cmd
}

// deviceAnswer is what is shown of one device.
type deviceAnswer struct {
	Name          string            `json:"name"`
	Node          string            `json:"node"`
	Resource      string            `json:"resource"`
	ID            string            `json:"id"`
	Phase         string            `json:"phase,omitempty"`
	Claim         string            `json:"claim,omitempty"`
	Pod           string            `json:"pod,omitempty"`
	Template      string            `json:"template,omitempty"`
	Unschedulable bool              `json:"unschedulable,omitempty"`
	Properties    map[string]string `json:"properties,omitempty"`
	Reason        string            `json:"reason,omitempty"`
	created       metav1.Time
}

type devicesAnswer struct {
	Devices []deviceAnswer `json:"devices"`
}

func (o *devicesOptions) run(ctx context.Context, names []string) error {
	cluster, err := o.cluster()
	if err != nil {
		return err
	}
	answer, err := o.read(ctx, cluster, names)
	if err != nil {
		return err
	}
	names = namesOf(answer.Devices, func(d *deviceAnswer) string {
		return "extendedresource." + v1alpha1.GroupName + "/" + d.Name
	})
	return o.show(answer, names, "There are no devices to show.", o.table(answer.Devices))
}

// read returns the devices that are asked for, by node, resource and ID. A name that is not there is an error.
func (o *devicesOptions) read(ctx context.Context, cluster *cluster, names []string) (*devicesAnswer, error) {
	client := cluster.reservations.GlobalreserveV1alpha1()
	list, err := client.ExtendedResources().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, explainAPIError("list devices", err)
	}
	claims, err := client.ExtendedResourceClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, explainAPIError("list claims of devices", err)
	}
	byName := map[string]*v1alpha1.ExtendedResourceClaim{} // namespace/name
	for i := range claims.Items {
		claim := &claims.Items[i]
		byName[claim.Namespace+"/"+claim.Name] = claim
	}
	all, err := readDRA(ctx, cluster)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		all = append(all, answerOf(&list.Items[i], byName))
	}
	answer := &devicesAnswer{Devices: []deviceAnswer{}}
	missing := sets.New(names...)
	for i := range all {
		missing.Delete(all[i].Name)
		if o.wants(&all[i], names) {
			answer.Devices = append(answer.Devices, all[i])
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("there is no device %s: kubectl reserve devices lists all",
			strings.Join(sets.List(missing), ", "))
	}
	slices.SortFunc(answer.Devices, func(a, b deviceAnswer) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.ID, b.ID),
			cmp.Compare(a.Name, b.Name))
	})
	return answer, nil
}

func (o *devicesOptions) wants(d *deviceAnswer, names []string) bool {
	free := d.Phase == string(v1alpha1.ExtendedResourceAvailable) && !d.Unschedulable
	return (len(names) == 0 || slices.Contains(names, d.Name)) && (o.node == "" || o.node == d.Node) &&
		(o.resource == "" || o.resource == d.Resource) && (!o.free || free)
}

func answerOf(d *v1alpha1.ExtendedResource, claims map[string]*v1alpha1.ExtendedResourceClaim) deviceAnswer {
	answer := deviceAnswer{
		Name: d.Name, Node: d.Spec.NodeName, Resource: d.Spec.ResourceName, ID: d.Spec.DeviceID,
		Phase: string(d.Status.Phase), Unschedulable: d.Spec.Unschedulable, Properties: d.Spec.Properties,
		created: d.CreationTimestamp,
	}
	if ref := d.Status.ClaimRef; ref != nil {
		answer.Claim = ref.Namespace + "/" + ref.Name
		if claim := claims[answer.Claim]; claim != nil {
			answer.Template = claim.Annotations[v1alpha1.ClaimTemplateAnnotation]
			if claim.Status.PodRef != nil {
				answer.Pod = claim.Status.PodRef.Name
			}
		}
	}
	if c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionOnline); c != nil {
		answer.Reason = c.Reason
	}
	return answer
}

func (o *devicesOptions) table(all []deviceAnswer) *metav1.Table {
	table := newTable("Node", "Resource", "ID", "Status", "Claim", "Pod", "+Template", "+Name", "+Properties", "+Reason",
		"+Age")
	for i := range all {
		d := &all[i]
		status := orNone(d.Phase)
		if d.Unschedulable {
			status += ",Unschedulable"
		}
		addRow(table, d.Node, d.Resource, d.ID, status, orNone(d.Claim), orNone(d.Pod), orNone(d.Template), d.Name,
			labels.FormatLabels(d.Properties),
			orNone(d.Reason), age(d.created.Time, o.clock.Now()))
	}
	return table
}
