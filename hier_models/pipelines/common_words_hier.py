"""The commonest English words, which a faithful summary may have without its document having them.

Counted by examples/mini/common_words.py: those that most kinds of summaries share, from encyclopedias to dialogues.
Numbers, names, substances and diseases are not among them.
"""

_TEXT = """
a abandoned abilities ability able about above absence absolute abstract academic accept accepted access accessibility
accessible accident accompanied accomplished according account accounting accounts accurate accurately achieve achieved
acid acoustic acquired acquisition across acting action actions activated activation active activities activity actor
acts actual actually adapt adaptation adapted adaptive add added adding addition additional additionally address
addressed addressing adds adjacent adjusted administration adopt adopted adoption adult adults advance advanced
advances advantage advantages advice advisory affect affected affecting affects after again against age agent agents
aggregate ago agreed agreement agricultural agriculture ahead aid aim aimed aims algorithm algorithms alignment all
allocation allow allowed allowing allows almost alone along alongside alpha already also alter altered alternate
alternating alternative alternatives alters although always amino among amount amounts an analysis analyze analyzing
anchored ancient and angle animal animals annual another answer anti any anyone anything apart app apparent appeal
appear appearance appeared appearing appears applicable application applications applied applies apply applying
approach approaches appropriate approved approximately arbitrary architecture architectures are area areas aren
argument arm arms around arrangement array arrival art article articles artifacts artificial as ask asked aspect
aspects assembled assess assessment assets assigned assist assistant assisted associate associated assumed assumptions
at atomic attached attachment attack attacks attempt attempted attempting attend attention attract attractive
attributed attributes audience audio auditory author authorities authority authors auto automated automatic
automatically autonomous auxiliary availability available average avoid aware awareness away baby back backed
background backward bacteria bacterial bad balance balances ball band bar barrier barriers base based bases basic basis
be became because become becomes becoming been before began begin beginning begins behavior behavioral behaviors
behaviour behind being believe believed belong belonging below beneficial benefit benefits besides best beta better
between beyond bias big binary bind binding biological biology bird birth bit black blind block blocked blocking blocks
blood blue bodies body bonds bone bones book border born both bottom bound boundary box brain branch branches break
breaking breast breathing bridge bridges brief briefly bring bringing brings broad broader broken brought budget bug
build building builds built bundle burning burns bus business but by calculate calculated calendar call called calling
calls came can candidate candidates cannot canonical capabilities capability capable capacity capital caps capture
captured car card cardiac care career carried carriers carries carry carrying cascade case cases cast catch categories
category cause caused causes causing cell cells centered centers central century cerebral certain chain chains
challenge challenges challenging chance change changed changes changing channel channels character characteristic
characteristics characterize characterized characters charge charged check checks chemical chemistry child childhood
children chip choice choices choose choosing chosen chronic circuit citizen citizens city claim claims class classes
classic classical classification classified clean clear clearly client climate clinical clock close closed closely
closer cloud cluster coat code codes coding cognitive cold collaboration collect collected collecting collection
collections collectively color colored colors colour combat combination combinations combine combined combines
combining come comes coming command commands commercial committed common commonly communicate communicating
communication communications communities community compact companion company comparative compare compared comparison
compatibility compatible compensation competing competition competitive complement complementary complete completed
completely completion complex complexes complexity compliance complicated complications component components composed
composition compound compounds comprehensive compression computation computational computed computer computers
computing concentration concept concepts concern concerned concerns conclusion condition conditional conditions conduct
conducted confidence configuration confirm confirmed connect connected connecting connection connections connects
consecutive consensus consequences consequently conservation conservative consider considerable considered considering
consist consistency consistent consistently consisting consists console constant constructed construction consumer
consumers consumption contact contain contained container containing contains content contents context contexts
continue continued continues continuous continuously contract contrast contribute contribution contributions control
controlled controller controlling controls conventional conversion convert converted cooperation cooperative
coordination copies copy core correct correctly corresponding cortex cost costs could couldn count counter counting
country counts coupled course cover coverage covered covering covers crash create created creates creating creation
credit criteria critical cross crucial crystal cultural culture cultures current currently curve curves custom customer
customers cut cycle cycles d daily damage damaged dark data database date daughter day days dead deal dealing death
deaths debate decade decades decide decided decision decisions decrease decreased decreases decreasing dedicated deep
default defense define defined defines defining definition degree degrees delay delayed deliver delivered delivery
demand demonstrate demonstrated denied density depend dependencies dependency dependent depending depends deployed
depth derivation derive derived describe described describes describing description descriptions design designated
designed designing designs desired despite destination destruction detail detailed details detect detected detecting
detection determine determined determines determining develop developed developer developers developing development
developmental develops device devices diagnosed diagnosis did didn die diet differ difference differences different
differential differently differs difficult difficulties difficulty digital dimensional dimensions direct directed
direction directions directly disability disabled disc discover discovered discovery discrete discrimination discuss
discussed discusses discussion discussions disease diseases disk disorder disorders display displayed distance distant
distinct distinction distinguish distributed distribution distributions diverse diversity divided do doctor document
documented documents does doesn dog doing domain domains domestic dominant don done double down download downstream
dramatically drawing drawn drive driven driver drives driving drop drug drugs dry dual due duplicated duplication
duration during dynamic each ear earlier earliest early ease easier easily easy eating economic ecosystem edge edit
editing edition editor editors education effect effective effectively effectiveness effects efficiency efficient
efficiently effort efforts egg eggs either electrical electron electronic element elements elevated eliminate else
embedded emergency emerging emphasis empirical employ employed enable enabled enables enabling encode encoded encoding
encompasses encouraging end ending ends energy enforce enforcement engage engine engineer engineering enhance enhanced
enough ensure ensures ensuring enter entered enterprise entire entirely entities entity entries entry environment
environmental environments enzyme enzymes epidemic episode episodes equal equations equipment equivalent error errors
escape especially essential essentially establish established establishes establishing estimate estimated etc evaluate
evaluated evaluation even event events eventually ever every everyone everything evidence evolution evolutionary evolve
evolved evolving exact exactly examination examine examined example examples excellent except exception excessive
exchange exclusive exclusively execution executive exercise exhibit exist existence existing exists exit expand
expanded expanding expansion expected expensive experience experienced experiences experiment experimental experiments
expert explain explained explains explanation explicitly exploration explore explorer explores exploring export exposed
exposure express expressed expressing expression expressions extend extended extending extends extension extensions
extensive extent external extra extreme extremely eye eyes face faced faces facilitate facilities facility facing fact
factor factors factory failed failing failure fair fall false families family far fashion fast faster fate favor fear
feature features feed feedback felt female females fever few fewer fiber field fields fight file files filter final
finally financial find finding findings fine finger finished fire first fish fit fix fixed fixing flag flat flexibility
flexible floating flow flowering flows fluid fly focus focused focuses focusing fold folding follow followed following
follows food foods foot for forced forces foreign form formal formally format formation formed former formerly forming
forms formula formulation forward found fraction frame frames framework free frequency frequent frequently fresh
friendly friends from front fruit full fully function functional functionality functions fundamental funding funds
further furthermore fusion future gain gained game games gap gaps gas gateway gave gender gene general generally
generate generated generates generating generation generic genetic geographic geographical geometry get gets getting
give given gives giving glass global go goal goals going gone good goods got governing government grade gradual
gradually gram graph greater greatest greatly green ground group grouping groups grow growing grown grows growth
guarantee guidance guide guided guidelines had hadn hair half hand handle handled handling hands happen hard harder
hardware has hasn have haven having he head health healthcare healthy hear hearing heart heat heavily heavy height held
help helped helpful helping helps hence her here hidden hierarchical hierarchy high higher highest highlight highly his
historical historically history hit hold holds home hop hospital host hosting hosts hot hour hours how however hub huge
human humans hybrid hypothesis i ice idea ideal ideas identical identification identified identifies identify
identifying identity if illness image images imaging immediate immediately immune impact impaired implement
implementation implemented implementing implications implies import importance important improve improved improvement
improvements improves improving in incident include included includes including inclusion incorporated incorrect
increase increased increases increasing increasingly independent independently index indicate indicated indicates
indicating indirect individual individually individuals industrial industries industry infants infection infections
infectious inflammation influence influenced inform information informed infrastructure inheritance inherited initial
initially initiative injected injection injuries injury inner input inputs insects inside insight insights inspired
instability instance instances instead institutions instruction instructions instruments intact integer integrate
integrated integration integrity intellectual intelligence intended intensity intention inter interact interacting
interaction interactions interactive interest interested interesting interface interfaces intermediate internal
international interpret interpretation intervention into intrinsic introduce introduced introduces introducing
introduction investigate investigated investigation involve involved involvement involves involving is islands isn
isolated issue issued issues it item items its itself job jobs join joined joint journey just keep keeping kept kernel
key keyboard keys kidney kind kinds know knowledge known label labels laboratory lack land landscape language languages
large largely larger largest laser last late latency later lateral latest latter launch launched law layer layers
layout lead leader leading leads leaf learn learned learning least leaves leaving led left legacy legal legs length
lens less let level levels library life lifetime light like likely limit limitation limitations limited limiting limits
line linear lines link linked linking links liquid list listed lists literature little live lived lives living ll load
loaded loading local localization localized locally located location locations lock locked log logic long longer look
looking loop loose lose losing loss losses lost lot low lower lung m machine machinery machines made magnitude main
mainly maintain maintained maintaining maintenance major majority make makers makes making male mammals man manage
managed management manager managing manifest manipulation manner manufactured many map mapped mapping maps marked
market marking marks mass master match matches material materials mathematical matrix matter mature maximum may mean
meaning meaningful means meant measure measured measurement measurements measures measuring meat mechanical mechanism
mechanisms media medical medicine medium meet meeting member members membership membrane memory men mental mentioned
message messages met metabolic metal method methodology methods metric metrics mid might migration military min mini
minimal minimize minimum mining minor minutes missing mission mitigate mixed mobile mobility mode model modeling models
moderate modern modes modification modifications modified modify modifying module modules molecular molecule molecules
money monitor monitoring month months more moreover morning most mostly mother motion motor motors mouse move moved
movement movements moves movie moving much multi multiple muscle music must mutation mutations mutual name named namely
names narrow native natural naturally nature navigation near nearby nearly necessary neck need needed needs negative
neither nerve net network networks neural neurons never new newly next night no node nodes noise non none nor normal
normally northern not notably note noted notes nothing notion novel now nuclear nucleus number numbers numerous object
objective objectives objects observation observations observed obtain obtained obvious occasionally occur occurred
occurring occurs of off offer offered offering offers office officer official officially often oil old older on once
one ones ongoing online only onto open opened opening opens operate operated operates operating operation operations
operator operators opinion opportunities opportunity opposed opposite optical optimal optimization optimize optimized
option options or orange order ordered ordering orders organ organisms organization organizational organizations
organized organizing oriented origin original originally origins other others otherwise our out outcome outcomes outer
output outside over overall overcome overhead overlap own owned owner ownership package packing page pages pain
painting pair paired pairs panel paper paradigm parallel parameter parameters parent parents part partial partially
participants participate participating participation particle particles particular particularly parties partly partner
partners parts pass passed passing passive past patch path paths patient patients pattern patterns pay payment peak
peer people per perceived percentage perception perform performance performed performing performs perhaps period
periods peripheral permanent permits persistent person personal personnel perspective phase phases phenomena phenomenon
phone phrase physical physically physiological physiology pick picture pieces pilot pipeline place placed placement
places plain plan plane planned planning plans plant plants plastic plateau platform platforms play played player
players playing plays plus point points policies policy pool poor poorly pop popular population populations portion
portions position positions positive possess possibility possible possibly post potential potentially power powered
powerful powers practical practice practices pre precise precisely precision predict predicted predominantly preference
preferred pregnancy pregnant preparation prepare prepared preparing presence present presentation presented presents
preserve preserved preserving pressure prevent prevented preventing prevention previous previously price primarily
primary principal principle principles print prior priority privacy private probably problem problems procedure
procedures process processed processes processing produce produced producer produces producing product production
products professional profile profit program programming programs progress progression progressive project projects
prominent promising promote promoted promotes promoting promotion proof propagation proper properly properties property
proposal proposals propose proposed proposes protect protected protection protective protects protein proteins protocol
protocols prove proven provide provided provider providers provides providing provision public publicly publish
published publishing pull pulmonary purchase pure purpose purposes pursue push put quality quantitative quantity
quantum question questioned questions quick quickly quite race radiation raise raised raising ran random randomly range
ranges ranking rapid rapidly rare rate rates rather ratio rational raw re reach reaching reaction reactions read
reading reads ready real reality really reason reasons receive received receiving recent recently recipient recognition
recognize recognized recommended reconstruction record recorded recording recordings recovery recurrent reduce reduced
reduces reducing reduction refer reference references referred refers reflect reflected reflects regarded regarding
regardless region regional regions registered registration regular regularly regulate regulated regulates regulation
regulatory related relation relations relationship relationships relative relatively release released releases
releasing relevant reliability reliable relief relies rely relying remain remained remaining remains remote removal
remove removed removes removing rendering repair repeated replace replaced replacement replacing report reported
reporting reports repository represent representation representations representative represented representing
represents reproductive request requests require required requirement requirements requires requiring rescue research
researcher researchers reserve resistance resistant resolution resolve resolved resource resources respect respective
respectively respiratory respond responded responding response responses responsible rest restoration restored restrict
restricted restriction restrictions result resulted resulting results retain retained retrieval return returned returns
reveal revealed revealing reverse review rice rich right rights ring rise risk risks robust role roles roll room root
roots rotation roughly round route routes rule rules run running runs s safe safety said salt same sample samples
satellite save saving say scale scan scene scenes schedule scheme schemes science scientific scientists scope score
scoring screen screens script search second secondary secret section sections sector secure security see seed seems
seen segment segments select selected selection selective self semi send sending senior sense sensitive sensor sensors
sensory sent separate separated separately separates separating separation sequence sequences sequencing serial series
serious serve served server serves service services serving session sessions set sets setting settings several severe
sex shallow shape shaped shapes share shared shares sharing sharp she shell shift shifting shifts short shorter shortly
shot should shoulder shouldn show showed showing shown shows side sides sign signal signals signature signed
significance significant significantly signs silent similar similarly simple simpler simply simulation simultaneously
since single sister site sites situation situations size sizes skills skin sleep slightly slow slowly small smaller
smallest smooth so social soft software solar sold solid solution solutions solve some someone something sometimes
somewhat soon sort sought sound source sources southern space spaces span speak speaking special specialized species
specific specifically specification specified specify spectrum speech speed spent sperm spike spinal spirit split
sponsored sports spread spring square stability stable stack stage stages stand standard standards standing star start
started starting starts state stated statement statements static statistical statistics status stay stem step steps
still stop stopped storage store stored stores stories story straight strain strategic strategies strategy stream
streaming streams strength strengthen stress strict strictly string strings strong stronger strongly structural
structure structured structures student students studied studies study studying style styles sub subject subjected
subjects subsequent subsequently subset substance substantial substantially substitution success successful
successfully such suffer sufficient sugar suggest suggested suggests suitable suite sum summary superior supplement
supplied supply support supported supporting supports sure surface surfaces surgery surgical surrounding survey survive
sustainable sweet swimming switch symbol symptoms syndrome synthesis synthetic system systemic systems t table tag tags
tail take taken takes taking tale talk target targeted targeting targets task tasks teacher teaching team teams
technical technique techniques technologies technology tell tells temperature template temporal temporary term termed
terminal terms test tested testing tests text than thanks that the their them theme themselves then theoretical
theories theory therapeutic therapies therapy there thereby therefore these they thin thing things think this those
though thought thread threat threshold through throughout thumb thus tied time times timing tip tissue title to today
together too took tool tools top topic topics topology total touch toward towards trace traces track tracking tracks
tract trade traditional traditionally traffic train trained training traits transcription transfer transferred
transform transformation transformations transformed transit transition translate translated translation transmission
transparency transparent transport transported travel treat treated treatment treatments tree trial trials tries
trigger triggered tropical true trust trusted truth try trying tube tune turn turned turns twice type types typical
typically ultimately unable unchanged unclear under undergo underlying understand understanding understood unexpected
unfortunately unified uniform unique unit units universal unknown unless unlike until unusual up upcoming update
updated updates upon upper ups urban usable usage use used useful user users uses using usual usually utility
utilization utilized utilizing vaccine valid validation valuable value values variable variables variant variants
variation variations variety various vary varying vast ve vector vegetables vehicle version versions very vessels via
viable video videos view viewed views viral virtual virus viruses visible vision visual voice volume vote vulnerability
vulnerable wake walk walking wall walls want wanted warning was wasn waste watch water wave waves way ways we weak
weakness weather web website week weekly weeks weight weights well went were weren what when where whereas whereby
whether which while white who whole whom whose why wide widely wider widespread width wild will win window wire wise
with withdrawal within without women won word words work worked worker workers working works worst would wouldn write
writers writes writing written wrong year years yeast yellow yet yield you young younger your zone zones
"""
COMMON_WORDS = frozenset(_TEXT.split())
