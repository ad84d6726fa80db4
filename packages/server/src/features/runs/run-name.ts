import { randomInt } from "node:crypto";

const ADJECTIVES = (
  "amber,azure,bold,brave,breezy,bright,brisk,bronze,calm,candid,clever,coral,cosmic,crisp,daring,deft,eager,early," +
  "fabled,fair,fleet,fond,frank,fresh,gentle,glad,golden,grand,hardy,honest,humble,ivory,jolly,keen,kind,lively,lucid," +
  "lucky,mellow,merry,mild,modest,neat,nimble,noble,patient,placid,polite,proud,quick,quiet,rapid,ready,robust,rosy," +
  "scarlet,serene,sharp,silent,silver,sleek,snug,solid,spry,steady,stout,sturdy,subtle,sunny,swift,tidy,tranquil,true," +
  "vivid,warm,wise,witty,zesty"
).split(",");

const ANIMALS = (
  "albatross,alpaca,antelope,badger,beaver,bison,bobcat,camel,caracal,cheetah,condor,cormorant,cougar,coyote,crane," +
  "dolphin,eagle,egret,falcon,ferret,finch,fox,gazelle,gecko,gibbon,goose,hare,hawk,heron,ibex,ibis,impala,jackal," +
  "jaguar,kestrel,kingfisher,koala,lemur,leopard,linnet,llama,lynx,magpie,marmot,marten,moose,narwhal,ocelot,orca," +
  "oriole,osprey,otter,owl,panda,panther,pelican,penguin,petrel,plover,puffin,puma,quail,raven,robin,salmon,seal," +
  "sparrow,starling,stork,swallow,swan,tapir,tern,toucan,turtle,vole,walrus,weasel,wolf,wombat,yak,zebra"
).split(",");

/** A name such as `brave-otter-42`. It may be taken. */
export function randomRunName(random: (below: number) => number = randomInt): string {
  const pick = (words: readonly string[]) => words[random(words.length)] ?? "run";
  return `${pick(ADJECTIVES)}-${pick(ANIMALS)}-${random(1000)}`;
}
